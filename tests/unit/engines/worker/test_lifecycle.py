"""How a worker runs and ends: it has ended, whatever happens on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from redrive.engines.worker.fate import Fate, WorkerError
from redrive.engines.worker.lifecycle import Lifecycle
from redrive.engines.worker.loop import NameInUseError
from redrive.kafka.errors import NotAllowedError


class World:
    """A lifecycle, and as much of the other parts of its worker as it uses."""

    def __init__(self, lacking: Callable[[], str] = str) -> None:
        self.fate = Fate()
        self.over = threading.Event()
        self.asked: list[str] = []
        self.members: list[Any] = []
        """Those that it makes, one after the other."""
        self.left = ""
        parts: dict[str, Any] = {
            "assignment": SimpleNamespace(partitions={}, revoke_wait=1.0),
            "dispatcher": SimpleNamespace(tick=lambda: self.asked.append("due")),
            "upkeep": SimpleNamespace(look=lambda: self.asked.append("hung")),
            "lag": SimpleNamespace(over=self.over),
        }
        self.lifecycle = Lifecycle(
            **parts,
            make_member=lambda: self.members.pop(0),
            fate=self.fate,
            drain=1.0,
            left=lambda: self.left,
            close=lambda: self.asked.append("closed"),
            lacking=lacking,
        )

    def begin(self, *members: Any) -> None:
        self.members += members
        self.lifecycle.begin()


def join() -> None:
    """It may not even join its group."""
    raise NotAllowedError("not allowed to read")


@pytest.fixture
def world() -> World:
    return World()


def test_all_that_is_missing_is_named():
    world = World(lambda: "lacks READ and WRITE")
    world.begin(SimpleNamespace(join=join))
    world.lifecycle.run()
    with pytest.raises(NotAllowedError, match="lacks READ and WRITE"):
        world.fate.check()
    assert world.asked == ["closed"]


def test_where_that_cannot_be_found_out_it_has_ended_all_the_same():
    def fails() -> str:
        raise OSError("the certificate is being replaced")

    world = World(fails)
    world.begin(SimpleNamespace(join=join))
    with pytest.raises(OSError, match="certificate"):
        world.lifecycle.run()
    assert world.fate.ended.is_set()
    with pytest.raises(NotAllowedError, match="not allowed to read"):
        world.fate.check()


def test_one_that_waits_for_a_silent_coordinator_stays_alive(world, monkeypatch):
    """It joins again once its old client has ended, however long that takes."""
    monkeypatch.setattr("redrive.engines.worker.lifecycle.NAME_WAIT", 0)
    looks, alive = iter([False, False, True]), []

    def refuse() -> None:
        raise NameInUseError("still in use")

    old = SimpleNamespace(
        join=lambda: None,
        ended_within=lambda _: next(looks),
        loop=SimpleNamespace(step=refuse, note_alive=lambda: alive.append(True)),
    )
    joined = []
    new = SimpleNamespace(
        join=lambda: joined.append(True),
        is_ending=False,
        loop=SimpleNamespace(step=world.over.set, drain=lambda *_, polls: True),
    )
    world.begin(old, new)
    world.lifecycle.run()
    world.fate.check()
    assert (len(alive), joined, world.lifecycle.member) == (2, [True], new)


def test_while_a_callback_waits_it_lives_and_time_passes_for_all_others(world):
    done = world.asked
    world.begin(SimpleNamespace(loop=SimpleNamespace(note_alive=lambda: done.append("alive"))))
    world.lifecycle.attend()
    assert done == ["alive", "due", "hung"]
    world.lifecycle.attend_no_more()  # else somebody does: who closes the consumer, say
    world.lifecycle.attend()
    assert done == ["alive", "due", "hung"]


def test_one_that_is_stopped_meanwhile_ends_in_order(world):
    """It waits for its handlers, not for the coordinator, and uses the consumer no more."""
    drained = []

    def step():
        world.lifecycle.stopping.set()
        raise NameInUseError("still in use")

    member = SimpleNamespace(
        join=lambda: None,
        loop=SimpleNamespace(step=step, drain=lambda *_, polls: drained.append(polls) or True),
        ended_within=lambda _: False,
        is_ending=True,
    )
    world.begin(member)
    world.lifecycle.run()
    world.fate.check()
    assert drained == [False]


def test_one_that_was_to_end_with_all_done_says_what_is_left(world):
    world.over.set()
    world.left = "2 records are left"
    member = SimpleNamespace(
        join=lambda: None, loop=SimpleNamespace(drain=lambda *_, polls: True), is_ending=False
    )
    world.begin(member)
    world.lifecycle.run()
    with pytest.raises(WorkerError, match="2 records are left"):
        world.fate.check()


def test_one_that_never_had_a_member_has_nothing_to_leave(world):
    assert world.lifecycle.leave()
