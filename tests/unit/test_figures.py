"""Figures: what a run has done, from the reports of its tasks."""

from __future__ import annotations

import json

from redrive.engines.figures import BUCKETS, Figures


def report(counts=None, lateness=(), trouble="", fatal=""):
    return json.dumps(
        {"counts": counts or {}, "lateness": list(lateness), "trouble": trouble, "fatal": fatal}
    )


def test_outcomes_are_counted_by_lane():
    figures = Figures()
    figures.add("main", [report({"done": 3, "park": 1}), report({"done": 2})])
    figures.add("retry", [report({"done": 1})])
    assert figures.counts("main") == {"done": 5, "park": 1}
    assert figures.counts("retry") == {"done": 1}
    assert figures.total("done") == 6
    assert figures.batches("main") == 1


def test_outcomes_that_did_not_happen_are_left_out():
    figures = Figures()
    figures.add("main", [report({"done": 0, "park": 1})])
    assert figures.counts("main") == {"park": 1}


def test_a_failed_batch_is_a_batch_with_trouble():
    figures = Figures()
    figures.failed("retry", "a worker died", number=4, seconds=1.5)
    assert figures.batches("retry") == 1
    assert figures.lanes["retry"].failed_batches == 1
    assert figures.lanes["retry"].last_trouble == "a worker died"
    (batch,) = figures.news
    assert (batch.number, batch.seconds, batch.failed) == (4, 1.5, True)


def test_each_batch_is_news_once():
    figures = Figures()
    figures.add("main", [report({"done": 2, "bury": 1}, trouble="no")], number=7, seconds=0.5)
    batch = figures.news.popleft()
    assert (batch.lane, batch.number, batch.records, batch.trouble) == ("main", 7, 3, "no")
    assert not figures.news


def test_lateness_is_kept_in_buckets_and_early_records_are_counted():
    figures = Figures()
    figures.add("retry", [report(lateness=[0, 50, 51, 100_000, -3])])
    late = figures.lateness_so_far()
    assert sum(late.counts) == 5
    assert late.total == 100_098
    assert late.counts[0] == 2  # 0 and -3: up to the first bound
    assert late.counts[BUCKETS.index(50)] == 1
    assert late.counts[BUCKETS.index(100)] == 1
    assert late.counts[-1] == 1
    assert figures.early == 1


def test_percentiles_of_lateness():
    figures = Figures()
    assert figures.lateness_percentile(0.5) is None
    figures.add("retry", [report(lateness=range(100))])
    assert figures.lateness_percentile(0.5) == 50
    assert figures.lateness_percentile(0.99) == 99
