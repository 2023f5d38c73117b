from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import redrive
import redrive.errors
import redrive.testing
from redrive import ConfigurationError, RedriveError

PUBLIC = {
    "App",
    "Backoff",
    "BatchContext",
    "Bury",
    "ConfigurationError",
    "Context",
    "ContextError",
    "EnvelopeError",
    "GiveBack",
    "HandlerTimeout",
    "InPlace",
    "LocalError",
    "PublishError",
    "Record",
    "RedriveError",
    "Retry",
    "RetryPolicy",
    "field",
    "header",
    "key",
    "optional",
}
TESTING = {"Attempt", "Kept", "MemoryBroker", "Simulation", "VirtualClock"}


@pytest.mark.parametrize(("module", "names"), [(redrive, PUBLIC), (redrive.testing, TESTING)])
def test_the_public_names_are_these_and_no_others(module, names):
    assert set(module.__all__) == names
    assert len(module.__all__) == len(names)
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_says_what_it_is(name):
    public = getattr(redrive, name)
    assert inspect.getdoc(public)
    if inspect.isclass(public):
        methods = [
            method
            for method_name, method in inspect.getmembers(public)
            if not method_name.startswith("_")
            and (inspect.isfunction(method) or isinstance(method, property))
            and getattr(method, "__module__", "redrive").startswith("redrive")
        ]
        assert all(inspect.getdoc(method) for method in methods)


@pytest.mark.parametrize("module", ["redrive", "redrive.testing"])
def test_importing_redrive_imports_none_of_its_extras(module):
    extras = ("pyspark", "psycopg", "psycopg_pool", "starlette", "uvicorn", "pytest", "pandas")
    code = f"import sys, {module}; print([name for name in {extras} if name in sys.modules])"
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert imported.stdout.strip() == "[]"


def test_there_is_one_tree_of_errors_and_its_docstring_draws_it():
    found, waiting = [], [RedriveError]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if hasattr(redrive, cls.__name__):
            found.append(cls)
    for cls in found:
        assert cls.__name__ in redrive.errors.__doc__
    public = {getattr(redrive, name) for name in PUBLIC}
    errors = {each for each in public if inspect.isclass(each) and issubclass(each, BaseException)}
    assert errors == set(found)


def test_one_mistake_is_a_sentence_and_several_are_a_list():
    assert str(ConfigurationError("no topic")) == "no topic"
    assert str(ConfigurationError(["no topic"])) == "no topic"
    several = ConfigurationError(["no topic", "no name"])
    assert several.problems == ("no topic", "no name")
    assert str(several) == "2 mistakes in the configuration:\n  - no topic\n  - no name"


def test_signals_say_their_reason_and_their_time():
    assert str(redrive.Retry("rate limited", after="37s")) == "rate limited"
    assert redrive.Retry("rate limited", after="37s").after == 37_000
    assert redrive.Retry().after is None
    assert str(redrive.Bury("never")) == "never"
    with pytest.raises(ConfigurationError, match="'soon' is not a duration"):
        redrive.Retry("x", after="soon")
