"""How several workers (`-n 3`) share the tests out, and what all tests have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    "tests/docs/test_programs.py": "spark runs",
    "tests/docs/test_examples.py::test_the_python_runs[docs/reference/frames": "spark runs",
    "tests/docs/test_examples.py::test_the_python_runs[docs/reference/local": "spark runs",
    # In one Spark session, which takes longer to start than most tests to run.
    "tests/engines/contract/": "spark session",
    "tests/engines/spark/test_backlog.py": "spark session",
    "tests/engines/spark/test_deaths.py": "spark session",
    "tests/engines/spark/test_secrets.py": "spark session",
    "tests/engines/spark/test_runs.py": "spark session",
    # With them, so that one worker has the secured Kafka that these share with the engines' tests.
    "tests/local/test_securing.py": "spark session",
    "tests/cli/test_doctor_permissions.py": "spark session",
    "tests/kafka/test_not_allowed.py": "spark session",
}
"""Tests of one group are run by one worker, one after the other; the first entry that fits counts.

So there are never more than two Sparks at once: on a small machine they only starve each other.
"""


def pytest_configure() -> None:
    # A busy machine is no reason to fail: what takes long is measured in bench/.
    settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any")
    for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ.setdefault(variable, _SHORT_LIVED)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Groups are what takes long: first, so that no worker is left alone with one at the end.
    items.sort(key=lambda item: _group(item.nodeid) is None)


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
