"""Fixtures of the engine suites: the engines in turn, and a Kafka for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import EngineUnderTest, OnSpark, OnWorker, Running, World


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
