"""What `redrive run` shows, without a run: rates, lanes, delays, troubles, the summary."""

from __future__ import annotations

import io
import json
from dataclasses import asdict

import pytest
from rich.console import Console

from redrive import App, RetryPolicy
from redrive.cli import view
from redrive.engines.ahead import Ahead
from redrive.engines.figures import Batch, Figures

NOW = 1000.0


class Run:
    def __init__(self):
        self.app = App("shop", retry=RetryPolicy("5s 1h"))
        self.figures = Figures()
        self.statuses = {"main": {}, "retry": {}}

    def status(self, lane):
        return self.statuses[lane]

    def add(self, lane, counts, lateness=(), trouble=""):
        report = {"counts": counts, "lateness": list(lateness), "trouble": trouble}
        self.figures.add(lane, [json.dumps(report)], number=self.figures.batches(lane), seconds=1.2)


@pytest.fixture
def run():
    run = Run()
    run.add("main", {"done": 4900, "park": 100})
    run.add("retry", {"done": 97, "bury": 3}, lateness=[120] * 98 + [900, 950])
    run.statuses["main"] = {
        "ahead": {"lag": {"orders": 1500, "refunds": 500}}, "in_flight": 1500, "lost": []
    }  # fmt: skip
    run.statuses["retry"] = {
        "ahead": {
            "lag": {"shop.retry.5s": 0, "shop.retry.1h": 12},
            "due": {"shop.retry.5s": 0, "shop.retry.1h": 0},
            "next_due": {"shop.retry.1h": (1000 + 250) * 1000},
        }
    }
    return run


def console(*, terminal=False):
    return Console(file=io.StringIO(), width=100, force_terminal=terminal, highlight=False)


def drawn(run, rates=None):
    out = console()
    out.print(view.picture(run.figures, run.statuses, rates or {"main": 1234.5}, NOW))
    return out.file.getvalue()


def test_without_a_terminal_each_batch_is_one_line(run):
    run.add("retry", {})  # nothing happened: nothing to tell
    run.figures.failed("main", "a Python worker died", number=3, seconds=0.5)
    out = console()
    with view.view(out) as lines:
        lines.show(run)
        lines.show(run)
    assert out.file.getvalue().splitlines() == [
        "main  batch 0: 4,900 done, 100 parked in 1.2 s",
        "retry batch 0: 97 done, 3 dead in 1.2 s",
        "main  batch 3: nothing done in 0.5 s; a Python worker died",
    ]


def test_outcomes_are_reported_in_their_order():
    batch = Batch("main", 1, {"skip": 1, "bury": 2, "done": 3}, seconds=2)
    assert view.line(batch) == "main  batch 1: 3 done, 2 dead, 1 skipped in 2.0 s"


def test_the_picture_has_lanes_delays_and_lateness(run):
    words = [line.split() for line in drawn(run).splitlines()]
    assert [
        "lane",
        "per",
        "s",
        "in",
        "flight",
        "ahead",
        "done",
        "parked",
        "dead",
        "batches",
    ] in words
    assert ["main", "1,234", "1,500", "2,000", "4,900", "100", "0", "1"] in words
    assert ["retry", "0", "0", "12", "97", "0", "3", "1"] in words
    assert ["shop.retry.1h", "12", "0", "in", "4m10s"] in words
    assert ["shop.retry.5s", "0", "0"] in words
    assert "lateness: p50 120 ms, p99 950 ms" in drawn(run)


def test_rare_outcomes_have_a_column_only_when_they_occur(run):
    assert "discarded" not in drawn(run)
    run.add("main", {"discard": 1})
    assert "discarded" in drawn(run)


def test_troubles_and_losses_are_shown(run):
    run.statuses["main"] |= {"trouble": "no broker answers", "lost": ["in[0]: gone", "in[1]: gone"]}
    assert "main lane is waiting: no broker answers" in drawn(run)
    assert "main lane: data loss detected 2 times" in drawn(run)


def test_before_anything_happened_there_is_a_picture_too():
    assert "no parked record has been due yet" in drawn(Run())


def test_a_terminal_gets_the_picture(run):
    out = console(terminal=True)
    with view.view(out) as picture:
        picture.show(run)
    assert "shop.retry.1h" in out.file.getvalue()


@pytest.mark.parametrize(
    ("due", "later", "told"),
    [
        (0, 1_004_000, "in 4s"),
        (1, 1_004_000, "now"),
        (0, 1_000_000, "now"),
        (0, 900_000, "now"),
        (5, None, "now"),
        (0, None, ""),
    ],
)
def test_when_the_next_record_is_due(due, later, told):
    waiting = Ahead({"t": 5}, {"t": due}, {}, {} if later is None else {"t": later})
    assert view.due_in(waiting, "t", NOW) == told


def test_a_rate_is_taken_over_the_last_seconds():
    rate = view.Rate()
    assert rate.of(0, 0.0) == 0
    assert rate.of(50, 5.0) == 10
    assert rate.of(100, 10.0) == 10
    assert rate.of(100, 15.0) == 5
    assert rate.of(100, 30.0) == 0


def test_the_summary_says_what_stays_parked_and_when_it_is_due(run):
    assert list(view.summary(run, NOW)) == [
        "main  lane: 4,900 done, 100 parked",
        "retry lane: 97 done, 3 dead",
        "lateness: p50 120 ms, p99 950 ms",
        "12 parked in shop.retry.1h, next due in 4m10s",
    ]


def test_the_summary_says_which_records_are_not_done_and_why(run):
    run.statuses["main"] |= {"refused": 2, "refusal": "a write to invoices was refused"}
    assert list(view.summary(run, NOW))[-1] == (
        "main lane: 2 records waiting: a write to invoices was refused"
    )


@pytest.mark.parametrize(
    ("lane", "waiting", "told"),
    [
        ("main", Ahead(lag={"orders": 3, "refunds": 1}), "nothing done, 4 left"),
        ("main", Ahead(lag={"orders": 0}), "nothing to do"),
        ("retry", Ahead(lag={"t": 5}, due={"t": 2}), "nothing done, 2 left"),
        ("retry", Ahead(lag={"t": 5}, due={"t": 0}), "nothing to do"),
    ],
)
def test_the_summary_tells_nothing_to_do_from_nothing_done(run, monkeypatch, lane, waiting, told):
    monkeypatch.setattr(run.figures, "counts", lambda _: {})
    run.statuses[lane]["ahead"] = asdict(waiting)
    [line] = [each for each in view.summary(run, NOW) if each.startswith(f"{lane:<5} lane: ")]
    assert line == f"{lane:<5} lane: {told}"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "nothing to do"),
        ({"ahead": {"lag": {"orders": 0}}, "trouble": "", "unfinished": 0}, "nothing to do"),
        ({"ahead": {"lag": {"orders": 4}}}, "nothing done, 4 left"),
        ({"trouble": "permission denied for table inbox"}, "nothing done"),
        ({"refused": 2, "refusal": "a write was refused"}, "nothing done"),
        ({"unfinished": 4}, "nothing done"),
    ],
)
def test_a_lane_that_left_something_undone_had_something_to_do(status, said):
    run = Run()
    run.statuses["main"] = status
    assert next(iter(view.summary(run, NOW))) == f"main  lane: {said}"


def test_one_is_not_told_as_many():
    assert view.told({"done": 1, "duplicate": 1}) == "1 done, 1 duplicate"
    assert view.told({"duplicate": 1_007}) == "1,007 duplicates"


def test_the_summary_says_how_many_records_were_not_finished(run):
    run.statuses["main"] |= {"unfinished": 4}
    told = list(view.summary(run, NOW))
    assert told[-1] == "main lane: 4 records did not finish and will run again"


def test_a_worker_has_no_column_of_batches():
    run = Run()
    run.figures.count("main", "orders", "done", 7)
    assert "batches" not in drawn(run)
    run.figures.failed("main", "a Python worker died")
    assert "0 (1 failed)" in drawn(run)


def test_steps_are_lines_where_there_is_no_terminal():
    out = console()
    with view.steps(out) as say:
        say("starting [Spark]")
    assert out.file.getvalue() == "starting [Spark] ...\n"
