"""How several workers (`-n 3`) share the tests out, and what all tests have in common."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the CPU time of a JVM that ends before compiling its code well would have paid off."""

_GROUPS = {
    # Two groups of about the same length. In the second one Spark runs in processes of its own, and
    # in a session for frames.
    "tests/engines/contract/test_exactly_once.py": "spark runs",
    "tests/engines/spark/test_cluster.py": "spark runs",
    "tests/engines/spark/frames/": "spark runs",
    "tests/prove/test_cells.py::test_a_cell_of_spark": "spark runs",
    "tests/cli/test_demo.py": "spark runs",
    "tests/cli/test_run.py": "spark runs",
    "tests/cli/test_tour.py": "spark runs",
    "tests/console/test_runs.py": "spark runs",
    "tests/console/test_warnings.py": "spark runs",
    "tests/docs/test_programs.py": "spark runs",
    "tests/docs/test_examples.py::test_the_python_runs[docs/reference/frames": "spark runs",
    "tests/docs/test_examples.py::test_the_python_runs[docs/reference/local": "spark runs",
    # Around the browser that these share, tests that run an event loop of their own would fail.
    "tests/console/test_browser.py": "browser",
    # In one Spark session, which takes longer to start than most tests to run.
    "tests/engines/contract/": "spark session",
    "tests/dead/test_engines.py": "spark session",
    "tests/engines/spark/test_backlog.py": "spark session",
    "tests/engines/spark/test_deaths.py": "spark session",
    "tests/engines/spark/test_secrets.py": "spark session",
    "tests/engines/spark/test_runs.py": "spark session",
    "tests/dead/test_spark_": "spark session",
    # With them, so that one worker has the secured Kafka that these share with the engines' tests.
    "tests/local/test_securing.py": "spark session",
    "tests/cli/test_doctor_permissions.py": "spark session",
    "tests/kafka/test_not_allowed.py": "spark session",
    "tests/dead/test_permissions.py": "spark session",
}
"""Tests of one group are run by one worker, one after the other; the first entry that fits counts.

So there are never more than two Sparks at once: on a small machine they only starve each other.
"""

_FULL = tomllib.loads(Path(__file__).with_name("full.toml").read_text())
"""What is left to `make full`, and what shows the same in `make test`."""


def pytest_configure() -> None:
    # A busy machine is no reason to fail: what takes long is measured in bench/.
    settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any")
    for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ.setdefault(variable, _SHORT_LIVED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    # pytest gives its handlers to loggers that do not propagate, and PySpark's loggers make every
    # handler that they are given write JSON: `caplog.text` depended on what was imported before.
    for handler in logging.getLogger().handlers:
        if type(handler.formatter).__module__.startswith("pyspark."):
            handler.setFormatter(logging.Formatter(item.config.getini("log_format")))


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """One session: it takes longer to start than most tests to run."""
    from redrive.engines.spark.spark_session import session
    from redrive.spark import connector_jars

    options = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.jars": connector_jars(),
        "spark.tests.password": "hunter2",
    }
    spark = session("tests", None, options)
    yield spark
    spark.stop()


@pytest.fixture
def redrive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Runs `redrive` with these arguments, on a wide terminal that is none."""
    from typer.testing import CliRunner

    from redrive.cli.commands import app as command

    monkeypatch.setenv("COLUMNS", "200")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(command, list(arguments))

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def as_user(
    redrive_secure_stack: Any, redrive_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Makes the environment that of a new user, who may do this and nothing else."""

    def make(needed: list[Any]) -> None:
        given = redrive_secure_stack.add_user(redrive_prefix, needed)
        monkeypatch.setenv("REDRIVE_BOOTSTRAP", given["bootstrap"])
        for name, value in given["security"].items():
            monkeypatch.setenv(f"REDRIVE_SECURITY_{name.upper()}", value)

    return make


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [item for item in items if item.nodeid.startswith(tuple(_FULL))]
    for item in left:
        item.add_marker(pytest.mark.full)
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        _check_full([item.nodeid for item in items], {item.nodeid for item in left})
    # Groups are what takes long: first, so that no worker is left alone with one at the end.
    items.sort(key=lambda item: _group(item.nodeid) is None)


def _check_full(names: list[str], left: set[str]) -> None:
    """What is left out is there, and so is what shows the same."""
    stays = [name for name in names if name not in left]
    wrong = [start for start in _FULL if not any(name.startswith(start) for name in left)]
    wrong += [
        shown for shown in _FULL.values() if not any(name.startswith(shown) for name in stays)
    ]
    if wrong:
        raise pytest.UsageError(f"tests/full.toml names tests that are not there: {sorted(wrong)}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        # Not the mark of pytest-xdist: it renames the tests, which new versions of pytest ignore.
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid) or nodeid

    config.option.loadscopereorder = False
    return ByGroup(config, log)


def _group(nodeid: str) -> str | None:
    if "[worker" in nodeid:  # the same suites on the other engine
        return None
    return next((name for start, name in _GROUPS.items() if nodeid.startswith(start)), None)
