"""Health of a run on Spark: whether its lanes go on, and whether they would handle anything."""

from __future__ import annotations

import logging
from time import time
from types import SimpleNamespace

import pytest

from redrive.engines.spark.health import checks
from redrive.engines.spark.under_way import UnderWay
from redrive.tuning import PLANNER_SILENCE


class Run:
    def __init__(self):
        self.queries = {lane: SimpleNamespace(isActive=True) for lane in ("main", "retry")}
        self.stopping = False
        self.trigger = 0.0
        self.statuses = {lane: {"planned": 3, "trouble": ""} for lane in self.queries}
        self.spoke = dict.fromkeys(self.queries, time())
        self.batches = dict.fromkeys(self.queries)

    def status(self, lane):
        return self.statuses[lane]

    def heard(self, lane):
        return self.spoke[lane]

    def batch_seconds(self, lane):
        return self.batches[lane]


@pytest.fixture
def run():
    return Run()


@pytest.fixture
def live(run):
    return checks(run)["/live"]


@pytest.fixture
def ready(run):
    return checks(run)["/ready"]


def test_all_is_well(live, ready):
    assert live() == ready() == ""


def test_a_lane_whose_query_ended_is_not_live(run, live, ready):
    run.queries["retry"].isActive = False
    assert live() == ready() == "the query of the retry lane has ended"


def test_a_planner_that_is_silent_is_not_live(run, live):
    run.spoke["main"] -= PLANNER_SILENCE + 5
    assert live() == "the planner of the main lane has been silent for 65 s"


def test_unless_its_batch_is_under_way_or_its_next_turn_is_later(run, live):
    run.spoke["main"] -= PLANNER_SILENCE + 5
    run.batches["main"] = 60.0
    assert live() == ""
    run.batches["main"] = None
    run.trigger = 10.0
    assert live() == ""


def test_an_outage_is_no_reason_to_start_again_but_it_is_not_ready(run, live, ready):
    run.statuses["main"]["trouble"] = "no broker answers"
    assert live() == ""
    assert ready() == "the main lane waits: no broker answers"


def test_before_its_lanes_have_planned_it_is_not_ready(run, live, ready):
    run.statuses["retry"] = {}
    assert live() == ""
    assert ready() == "the retry lane has not planned yet"


def test_while_it_is_stopped_it_is_live_and_not_ready(run, live, ready):
    run.stopping = True
    run.queries["main"].isActive = False
    assert live() == ""
    assert ready() == "it is being stopped"


def test_a_batch_over_its_deadline_is_said_and_again_when_it_is_twice_as_old(caplog):
    now = [100.0]
    under_way = UnderWay(10.0, lambda: now[0])
    with under_way.batch("main", 6):
        pass
    with under_way.batch("main", 7):
        for seconds, lines in ((39, 0), (40, 1), (79, 1), (81, 2)):
            now[0] = 100.0 + seconds
            under_way.warn()
            assert caplog.text.count("main lane: batch 7 has been under way") == lines
        assert under_way.seconds("main") == 81
        assert under_way.seconds("retry") is None
    assert under_way.seconds("main") is None
    under_way.warn()
    assert len(caplog.records) == 2
    assert caplog.records[0].levelno == logging.WARNING
    assert "for 40 s, though its tasks should end after 10 s" in caplog.text
    assert "a handler takes long" in caplog.text


def test_of_a_first_batch_it_is_said_that_much_has_to_start(caplog):
    now = [100.0]
    under_way = UnderWay(10.0, lambda: now[0])
    for lane in ("main", "retry"):  # each has Python processes of its own to wait for
        with under_way.batch(lane, 0):
            now[0] += 50
            under_way.warn()
        assert f"{lane} lane: batch 0 has been under way for 50 s" in caplog.text
    assert caplog.text.count("it is the first one, for which Python processes start") == 2
    with under_way.batch("main", 1):
        now[0] += 50
        under_way.warn()
    assert caplog.text.count("a handler takes long, or an acknowledgement does not come") == 1
