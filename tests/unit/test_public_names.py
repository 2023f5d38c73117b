from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import redrive
import redrive.dead
import redrive.rewind
import redrive.testing
import redrive.worker
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
    "Guard",
    "HandlerTimeout",
    "InPlace",
    "LocalError",
    "Outage",
    "PublishError",
    "Record",
    "RedriveError",
    "Retry",
    "RetryPolicy",
    "Settings",
    "field",
    "header",
    "key",
    "load_settings",
    "optional",
}
TESTING = {"Attempt", "Kept", "MemoryBroker", "Simulation", "VirtualClock"}
DEAD = {
    "DIALECTS",
    "DeadLetters",
    "Detail",
    "Filter",
    "FixError",
    "Found",
    "Group",
    "Letter",
    "Match",
    "Operation",
    "Operator",
    "ParkedRule",
    "ReplayOptions",
    "ReplayPlan",
    "Scanned",
    "Stats",
    "Steering",
    "SteeringPlan",
    "TakenOverError",
    "Trying",
    "UnderWayError",
    "open_letters",
    "open_operator",
    "open_steering",
}
REWIND = {
    "RewindPlan",
    "Rewinder",
    "Span",
    "TakenOverError",
    "UnderWayError",
    "Where",
    "open_rewinder",
}
WORKER = {
    "BrokerError",
    "Collector",
    "NotAllowedError",
    "Options",
    "StoreNotAllowedError",
    "StoreRefusedError",
    "TransactionEndedError",
    "Worker",
    "WorkerError",
    "start",
}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (redrive, PUBLIC),
        (redrive.dead, DEAD),
        (redrive.rewind, REWIND),
        (redrive.testing, TESTING),
        (redrive.worker, WORKER),
    ],
)
def test_the_public_names_are_these_and_no_others(module, names):
    assert set(module.__all__) == names
    assert len(module.__all__) == len(names)
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *((redrive, name) for name in sorted(PUBLIC)),
        *((redrive.worker, name) for name in sorted(WORKER)),
    ],
)
def test_every_public_name_says_what_it_is(module, name):
    public = getattr(module, name)
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


@pytest.mark.parametrize("module", ["redrive", "redrive.testing", "redrive.worker"])
def test_importing_redrive_imports_none_of_its_extras(module):
    extras = ("pyspark", "psycopg", "psycopg_pool", "starlette", "uvicorn", "pytest", "pandas")
    code = f"import sys, {module}; print([name for name in {extras} if name in sys.modules])"
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert imported.stdout.strip() == "[]"


def test_engines_are_imported_by_those_who_name_them():
    code = "import sys, redrive; print([name for name in sys.modules if 'engines' in name])"
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert imported.stdout.strip() == "[]"


def test_errors_of_redrive_are_public_by_their_names():
    public = {getattr(redrive, name) for name in PUBLIC}
    errors = {each for each in public if inspect.isclass(each) and issubclass(each, BaseException)}
    assert all(issubclass(each, RedriveError) for each in errors)


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
