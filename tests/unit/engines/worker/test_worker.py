"""A worker that ends for lack of a permission: it has ended, whatever happens to the sentence."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from redrive.engines import preflight
from redrive.engines.worker.fate import Fate
from redrive.engines.worker.loop import NameInUseError
from redrive.engines.worker.worker import Worker
from redrive.kafka.errors import NotAllowedError


@pytest.fixture
def worker() -> Any:
    """As much of one as its last step needs; it may not even join its group."""
    made: Any = object.__new__(Worker)
    made._fate = Fate()
    made.ended = made._fate.ended
    made._stopping = threading.Event()
    made._attending = threading.Lock()
    made.app = made._settings = None
    made._target = "shop:app"

    def join() -> None:
        raise NotAllowedError("not allowed to read")

    made.member = SimpleNamespace(join=join)
    made._close_all = lambda: None
    return made


def test_all_that_is_missing_is_named(worker, monkeypatch):
    monkeypatch.setattr(preflight, "not_allowed", lambda *_: "lacks READ and WRITE")
    worker._run()
    with pytest.raises(NotAllowedError, match="lacks READ and WRITE"):
        worker.check()


def test_where_that_cannot_be_found_out_it_has_ended_all_the_same(worker, monkeypatch):
    def fails(*_: Any) -> str:
        raise OSError("the certificate is being replaced")

    monkeypatch.setattr(preflight, "not_allowed", fails)
    with pytest.raises(OSError, match="certificate"):
        worker._run()
    assert worker.ended.is_set()
    with pytest.raises(NotAllowedError, match="not allowed to read"):
        worker.check()


def test_one_that_waits_for_a_silent_coordinator_stays_alive(worker):
    """It joins again once its old client has ended, however long that takes."""
    looks, alive = iter([False, False, True]), []
    old = SimpleNamespace(
        ended_within=lambda _: next(looks),
        loop=SimpleNamespace(note_alive=lambda: alive.append(True)),
    )
    worker._dispatcher = SimpleNamespace(tick=lambda: None)
    worker._upkeep = SimpleNamespace(look=lambda: None)
    new = SimpleNamespace(join=lambda: None)
    worker.member, worker._refusal = old, ""
    worker._lag = SimpleNamespace(over=threading.Event())
    worker.assignment = SimpleNamespace(partitions={})
    worker._make_member = lambda: new
    worker._stopping = SimpleNamespace(is_set=lambda: False, wait=lambda _: None)
    worker._rejoin(NameInUseError("still in use"))
    assert (len(alive), worker.member) == (2, new)


def test_while_a_callback_waits_it_lives_and_time_passes_for_all_others(worker):
    done = []
    worker.member = SimpleNamespace(loop=SimpleNamespace(note_alive=lambda: done.append("alive")))
    worker._dispatcher = SimpleNamespace(tick=lambda: done.append("due"))
    worker._upkeep = SimpleNamespace(look=lambda: done.append("hung"))
    with worker._attending:
        worker._attend()  # somebody else does: who closes the consumer, say
    assert done == []
    worker._attend()
    assert done == ["alive", "due", "hung"]


def test_one_that_is_stopped_meanwhile_ends_in_order(worker):
    """It waits for its handlers, not for the coordinator, and uses the consumer no more."""
    drained = []

    def step():
        worker._stopping.set()
        raise NameInUseError("still in use")

    worker._refusal = ""
    worker.member = SimpleNamespace(
        join=lambda: None,
        loop=SimpleNamespace(step=step, drain=lambda *_, polls: drained.append(polls) or True),
        ended_within=lambda _: False,
        is_ending=True,
    )
    worker._upkeep = SimpleNamespace(look=lambda: None)
    worker._lag = SimpleNamespace(over=threading.Event())
    worker._options = SimpleNamespace(drain_seconds=1.0)
    worker.assignment = SimpleNamespace(partitions={}, revoke_wait=1.0)
    worker._run()
    worker.check()
    assert drained == [False]
