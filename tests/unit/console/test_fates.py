"""Whether a replay has worked: asked in the background, until nothing can change."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from redrive.console import fates as module
from redrive.console.fates import Fates
from redrive.dead import Operation
from redrive.dead.watching import Fate
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import CONSOLE_FATE_SECONDS

WAITING, SETTLED = Fate(0, 0, 3), Fate(1, 0, 0)


class Watch:
    """Finds what it is told to find, one after the other."""

    delay = 5000

    def __init__(self, *found):
        self.found = [*found]
        self.looks = 0

    def look(self):
        self.looks += 1
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found


class Page:
    """The page of a job, looked at every two seconds; each look in the background ends at once."""

    def __init__(self, monkeypatch, watch):
        self.clock, self.watch, self.waits = VirtualClock(), watch, None
        self.fates = Fates(lambda _operation: watch, self.clock, lambda: self.clock.now() / 1000)
        monkeypatch.setattr(module, "begin", self._begin)
        self.operation = Operation(
            id="replay-1", kind="replay", by="a", at=0, status="done", updated=self.clock.now()
        )

    def _begin(self, run, name):
        if self.waits is not None:
            return self.waits
        ended = Future()
        try:
            ended.set_result(run())
        except RuntimeError as error:
            ended.set_exception(error)
        return ended

    def look(self, seconds=2, **changes):
        self.clock.advance(int(seconds * 1000))
        return self.fates.of(self.operation.change(**changes))


def test_it_is_asked_until_all_are_handled_or_dead_and_then_no_more(monkeypatch):
    page = Page(monkeypatch, Watch(WAITING, Fate(0, 1, 0), SETTLED))
    assert [page.look() for _ in range(6)] == [None, WAITING, Fate(0, 1, 0), *[SETTLED] * 3]
    assert page.watch.looks == 3


def test_many_who_look_ask_once(monkeypatch):
    page = Page(monkeypatch, Watch(WAITING))
    for _ in range(10):
        page.look(0.1)
    assert page.watch.looks == 1
    page.waits = Future()  # it takes long, and nobody asks beside it
    page.look()
    page.clock.advance(60_000)
    assert page.look() == WAITING
    assert page.watch.looks == 1


def test_a_job_that_nobody_looks_at_any_more_keeps_no_other_from_being_asked(monkeypatch):
    page = Page(monkeypatch, Watch(WAITING))
    page.look()
    page.look(id="replay-2")
    assert page.look(id="replay-2") == WAITING


def test_copies_that_nobody_handles_are_not_looked_for_for_ever(monkeypatch):
    page = Page(monkeypatch, Watch(WAITING))
    page.look()
    page.look(CONSOLE_FATE_SECONDS)
    looks = page.watch.looks
    page.look(10)
    assert page.look(10) == WAITING
    assert page.watch.looks == looks


def test_a_job_of_long_ago_is_looked_at_once(monkeypatch):
    page = Page(monkeypatch, Watch(SETTLED))
    page.look(10 * CONSOLE_FATE_SECONDS)
    assert page.look() == SETTLED


def test_what_cannot_be_seen_now_is_asked_again(monkeypatch):
    page = Page(monkeypatch, Watch(RuntimeError("the broker is away"), SETTLED))
    assert [page.look() for _ in range(3)] == [None, None, SETTLED]


@pytest.mark.parametrize("other", [{"kind": "discard"}, {"status": "running"}])
def test_only_of_replays_that_are_done(monkeypatch, other):
    page = Page(monkeypatch, Watch(SETTLED))
    assert [page.look(**other) for _ in range(3)] == [None] * 3
    assert page.watch.looks == 0


def test_of_an_app_without_its_code_nothing_is_said(monkeypatch):
    page = Page(monkeypatch, None)
    assert page.look() is page.look() is None
