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
    made._ended = made._fate.ended
    made._stopping = threading.Event()
    made.app = made._settings = None
    made._target = "shop:app"

    def join() -> None:
        raise NotAllowedError("not allowed to read")

    made._member = SimpleNamespace(join=join)
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
    assert worker._ended.is_set()
    with pytest.raises(NotAllowedError, match="not allowed to read"):
        worker.check()


def test_one_that_waits_for_a_silent_coordinator_stays_alive(worker):
    """It joins again once its old client has ended, however long that takes."""
    looks, alive = iter([False, False, True]), []
    old = SimpleNamespace(
        ended_within=lambda _: next(looks),
        loop=SimpleNamespace(note_alive=lambda: alive.append(True)),
    )
    new = SimpleNamespace(join=lambda: None)
    worker._member, worker._refusal = old, ""
    worker._lag = SimpleNamespace(over=threading.Event())
    worker._assignment = SimpleNamespace(partitions={})
    worker._make_member = lambda: new
    worker._stopping = SimpleNamespace(is_set=lambda: False, wait=lambda _: None)
    worker._rejoin(NameInUseError("still in use"))
    assert (len(alive), worker._member) == (2, new)
