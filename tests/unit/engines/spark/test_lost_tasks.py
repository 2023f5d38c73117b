"""Lost tasks: what Spark says of their ends, as its status store has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redrive.engines.spark import lost_tasks
from redrive.engines.spark.lost_tasks import DEATH, asked_of


class Option:
    """Scala's."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def isDefined(self) -> bool:  # noqa: N802 -- Scala's name
        return self._value is not None

    def get(self) -> str | None:
        return self._value


class Store:
    """Spark's record of tasks and executors: the one that is asked for looks so often alive."""

    def __init__(self, error: str, executor: str, looks: int) -> None:
        self.looks = looks
        self._task = SimpleNamespace(
            index=lambda: 3,
            attempt=lambda: 0,
            executorId=lambda: executor,
            errorMessage=lambda: Option(error),
        )

    def taskList(self, *_: int) -> Any:  # noqa: N802 -- Scala's name
        return SimpleNamespace(size=lambda: 1, apply=lambda _: self._task)

    def executorSummary(self, _: str) -> Any:  # noqa: N802 -- Scala's name
        self.looks -= 1
        if self.looks < -1:
            raise LookupError("it is not kept for ever")
        return SimpleNamespace(isActive=lambda: self.looks >= 0)


def session(store: Store) -> Any:
    context = SimpleNamespace(statusStore=lambda: store)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


DIED = f"{DEATH} (crashed)"


@pytest.mark.parametrize(
    ("executor", "looks", "is_death"),
    [("driver", 0, True), ("1", 10_000, True), ("1", 0, False), ("1", 3, False), ("1", -1, False)],
    ids=["no cluster", "goes on", "gone", "gone a little later", "not kept any more"],
)
def test_a_worker_that_ends_with_its_executor_is_no_proof(
    monkeypatch, executor: str, looks: int, is_death: bool
) -> None:
    monkeypatch.setattr(lost_tasks, "LOST_EXECUTOR_PATIENCE", 0.3)
    end = asked_of(session(Store(DIED, executor, looks)))(7, 3)
    assert end.startswith(DEATH) == is_death


def test_other_ends_are_told_as_spark_tells_them() -> None:
    end = "ExecutorLostFailure (executor 1 exited)"
    assert asked_of(session(Store(end, "1", 10_000)))(7, 3) == end


def test_that_an_executor_outlived_one_batch_says_nothing_about_the_next(monkeypatch) -> None:
    monkeypatch.setattr(lost_tasks, "LOST_EXECUTOR_PATIENCE", 0.3)
    store = Store(DIED, "1", 10_000)
    ask = asked_of(session(store))
    assert ask(7, 3).startswith(DEATH)
    before = store.looks
    assert ask(7, 3).startswith(DEATH)
    assert store.looks == before - 1  # one wait is enough for all tasks of a batch
    store.looks = 3  # its container is being ended, and the driver notices a little later
    assert not ask(8, 3).startswith(DEATH)
