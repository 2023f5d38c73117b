"""Endings: a run that shall end does so when nothing is left, and never before."""

from __future__ import annotations

import pytest

from redrive.engines.figures import Figures
from redrive.engines.spark.endings import ending
from redrive.testing import VirtualClock


class Run:
    """A run whose planners see what the test says."""

    def __init__(self, *lanes):
        self.lanes = lanes or ("main", "retry")
        self.clock = VirtualClock()
        self.figures = Figures()
        self.statuses = {}
        self.did = []

    def status(self, lane):
        return self.statuses.get(lane, {})

    def start_lane(self, lane):
        self.did.append(f"start {lane}")

    def end_lane(self, lane):
        self.did.append(f"end {lane}")

    def sees(self, lane, **status):
        self.clock.advance(1)
        self.statuses[lane] = {"at": self.clock.now(), **status}
        self.clock.advance(1)


@pytest.fixture
def run():
    return Run()


def test_a_run_without_an_ending_never_ends(run):
    over = ending("stopped", run, run.clock)
    run.sees("main", empty=True, reached=True)
    run.sees("retry", empty=True, reached=True)
    assert not over()


def test_once_runs_the_lanes_one_after_the_other(run):
    over = ending("once", run, run.clock)
    assert not over()
    run.sees("main", reached=False)
    assert not over()
    assert run.did == []
    run.sees("main", reached=True)
    assert not over()
    assert run.did == ["end main", "start retry"]
    run.sees("retry", reached=True)
    assert over()
    assert run.did == ["end main", "start retry", "end retry"]


def test_once_without_delay_topics_ends_with_the_main_lane():
    run = Run("main")
    over = ending("once", run, run.clock)
    run.sees("main", reached=True)
    assert over()


def look(run, over, *lanes, empty=True):
    """Let planners look, one after the other; what the ending says after each."""
    answers = []
    for lane in lanes:
        run.sees(lane, empty=empty)
        answers.append(over())
    return answers


def test_empty_is_main_then_retry_then_still_main(run):
    over = ending("empty", run, run.clock)
    assert look(run, over, "main", "retry", "main") == [False, False, True]


def test_an_old_look_proves_nothing(run):
    over = ending("empty", run, run.clock)
    run.sees("retry", empty=True)
    run.sees("main", empty=True)
    assert [over(), over(), over()] == [False, False, False]


def test_a_clock_that_is_set_back_begins_the_proof_again(run):
    over = ending("empty", run, run.clock)
    assert look(run, over, "main", "retry") == [False, False]
    run.clock.set(run.clock.now() - 3_600_000)
    assert look(run, over, "main", "retry", "main") == [False, False, True]


def test_a_record_parked_between_two_looks_is_waited_for(run):
    over = ending("empty", run, run.clock)
    assert look(run, over, "main") == [False]
    run.sees("retry", empty=False)
    assert not over()
    assert look(run, over, "main", "retry", "main") == [False, False, True]


def test_a_batch_of_the_main_lane_begins_the_proof_again(run):
    over = ending("empty", run, run.clock)
    assert look(run, over, "main", "retry") == [False, False]
    run.figures.add("main", [])  # what it parked, the retry lane has not seen
    assert look(run, over, "main", "main") == [False, False]
    assert look(run, over, "retry", "main") == [False, True]


def test_a_planner_in_trouble_proves_nothing(run):
    over = ending("empty", run, run.clock)
    assert look(run, over, "main") == [False]
    run.sees("retry", empty=True, trouble="no broker answers")
    assert not over()
    assert look(run, over, "retry", "main") == [False, True]


def test_empty_without_delay_topics():
    run = Run("main")
    over = ending("empty", run, run.clock)
    assert look(run, over, "main", "main") == [False, True]
