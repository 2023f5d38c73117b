"""Figures: what a run has done, from the reports of its tasks."""

from __future__ import annotations

import json
from time import time

from redrive.engines.figures import BUCKETS, Figures
from redrive.fingerprint import Fingerprint
from redrive.processing.outcomes.causes import Cause, Seen

TOPICS = ("orders", "refunds")


def report(counts=None, lateness=(), trouble="", fatal="", topic="orders"):
    return json.dumps(
        {
            "topic": topic,
            "counts": counts or {},
            "lateness": list(lateness),
            "trouble": trouble,
            "fatal": fatal,
        }
    )


def test_outcomes_are_counted_by_lane():
    figures = Figures()
    figures.add("main", [report({"done": 3, "park": 1}), report({"done": 2})])
    figures.add("retry", [report({"done": 1})])
    assert figures.counts("main") == {"done": 5, "park": 1}
    assert figures.counts("retry") == {"done": 1}
    assert figures.total("done") == 6
    assert figures.batches("main") == 1


def test_what_was_read_in_delay_topics_counts_for_the_retry_lane():
    """Also where one lane plans all, in strict order."""
    figures = Figures()
    hop = json.dumps({**json.loads(report({"done": 2}, topic="retry.5m")), "delay": 300_000})
    figures.add("main", [report({"done": 3}), hop])
    assert (figures.counts("main"), figures.counts("retry")) == ({"done": 3}, {"done": 2})
    assert (figures.batches("main"), figures.batches("retry")) == (1, 0)


def test_outcomes_are_counted_by_the_topic_they_were_read_from():
    figures = Figures()
    figures.add("main", [report({"done": 3}), report({"done": 2, "park": 1}, topic="refunds")])
    figures.count("main", "orders", "done", 4)
    assert figures.counts_by_topic("main") == {
        ("orders", "done"): 7,
        ("refunds", "done"): 2,
        ("refunds", "park"): 1,
    }
    assert figures.counts("main") == {"done": 9, "park": 1}


def buried(count, topic, reason, kind="bury"):
    return Seen(Cause(kind, topic, Fingerprint(reason, "ValueError")), count, 0, 0)


def test_dead_records_are_counted_by_source_topic_and_reason():
    figures = Figures()
    figures.count_dead([buried(2, "orders", "exhausted"), buried(1, "orders", "rejected")], TOPICS)
    figures.count_dead([buried(3, "orders", "exhausted"), buried(9, "orders", "", "park")], TOPICS)
    assert figures.dead() == {("orders", "exhausted"): 5, ("orders", "rejected"): 1}


def test_what_headers_say_makes_no_label_of_its_own():
    figures = Figures()
    for number in range(100):
        figures.count_dead([buried(1, f"made up {number}", f"made up {number}")], TOPICS)
    assert figures.dead() == {("other", "other"): 100}


def test_when_a_lane_last_moved_and_when_its_last_batch_ended():
    figures = Figures()
    main = figures.lanes["main"]
    assert main.moved is main.ended is None
    began = time()
    figures.add("main", [report()])
    assert main.moved is None, "nothing was done in it"
    assert began <= main.ended <= time()
    figures.add("main", [report({"done": 1})])
    assert began <= main.moved <= time()
    figures.failed("retry", "a worker died")
    assert figures.lanes["retry"].ended >= began


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
