"""What waits is counted once for all who look, in the background, and within bounds."""

from __future__ import annotations

from threading import Event

import pytest

from redrive.console import parked_counts
from redrive.console.parked_counts import ParkedCounts
from redrive.dead.parked import Parked
from redrive.errors import RedriveError
from redrive.threads import begin
from redrive.tuning import CONSOLE_PARKED, CONSOLE_PARKED_EVERY


class World:
    def __init__(self, monkeypatch):
        self.now = 0.0
        self.begun = []
        monkeypatch.setattr(parked_counts, "begin", self.begin)
        self.asked = []
        self.answers = Event()
        self.answers.set()
        self.counts = ParkedCounts(self.count, lambda: self.now)

    def begin(self, run, *, name):
        self.begun.append(begin(run, name=name))
        return self.begun[-1]

    def count(self, most):
        self.asked.append(most)
        assert self.answers.wait(60)
        return [Parked("shop.retry.5s", 5000, count=len(self.asked))]

    def look(self):
        waiting = self.counts.look()
        return [each.count for each in waiting.parked], waiting.fresh


def test_many_who_look_have_it_counted_once_and_within_a_bound(monkeypatch):
    world = World(monkeypatch)
    assert [world.look() for _ in range(20)] == [([1], True)] * 20
    assert world.asked == [CONSOLE_PARKED]
    world.now += CONSOLE_PARKED_EVERY + 1
    assert world.look() == ([2], True)


def test_no_page_waits_until_all_is_counted(monkeypatch):
    monkeypatch.setattr(parked_counts, "CONSOLE_SCAN_SECONDS", 0.01)
    world = World(monkeypatch)
    world.answers.clear()
    assert [world.look() for _ in range(3)] == [([], False)] * 3
    assert len(world.asked) == 1
    world.answers.set()
    world.begun[0].result(60)
    assert world.look() == ([1], True)
    world.now += CONSOLE_PARKED_EVERY + 1
    world.answers.clear()
    assert world.look() == ([1], False)  # as of a while ago
    world.answers.set()


def test_what_was_said_about_them_is_there_for_whoever_looks_next(monkeypatch):
    world = World(monkeypatch)
    world.look()
    world.counts.outdated()
    assert world.look() == ([2], True)


def test_a_count_that_began_before_something_was_said_is_not_kept(monkeypatch):
    monkeypatch.setattr(parked_counts, "CONSOLE_SCAN_SECONDS", 0.01)
    world = World(monkeypatch)
    world.answers.clear()
    world.look()
    world.counts.outdated()
    world.answers.set()
    world.begun[0].result(60)
    monkeypatch.setattr(parked_counts, "CONSOLE_SCAN_SECONDS", 60)
    assert world.look() == ([2], True)


def test_why_it_cannot_be_counted_is_said_and_it_is_tried_again():
    answers = [RedriveError("no broker answers"), []]

    def count(_most):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    counts = ParkedCounts(count)
    with pytest.raises(RedriveError, match="no broker"):
        counts.look()
    assert counts.look() == ([], True)
