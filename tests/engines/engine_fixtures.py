"""Fixtures of the engine suites: a Spark session for all of them, and the engines in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import EngineUnderTest, OnSpark, OnWorker, Running, World


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """One session: it takes longer to start than most tests to run."""
    from redrive.engines.spark.session import session
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


@pytest.fixture(params=["spark", "worker"])
def engine(request: pytest.FixtureRequest) -> EngineUnderTest:
    """Each engine in turn; the tests are the same."""
    if request.param == "worker":
        return OnWorker()
    return OnSpark(request.getfixturevalue("spark_session"))


@pytest.fixture
def world(
    redrive_stack: Any, redrive_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = World(redrive_stack.bootstrap, tmp_path, redrive_prefix)
    yield made
    made.close()


@pytest.fixture
def start(engine: EngineUnderTest, world: World) -> Iterator[Callable[..., Running]]:
    """Starts apps, and stops them at the end of the test."""
    started: list[Running] = []

    def begin(target: str, **options: Any) -> Running:
        started.append(engine.start(target, world.bootstrap, **options))
        return started[-1]

    yield begin
    for run in started:
        run.kill()
