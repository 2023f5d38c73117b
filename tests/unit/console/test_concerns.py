"""What a person would want to be warned of, and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from redrive.console.concerns import concerns
from redrive.console.endpoints import Health, Seen, quantile
from redrive.console.flow import Flow, Node
from redrive.console.letters_index import Counted
from redrive.console.retention import Kept
from redrive.dead import Group

NOW = 1_000_000_000_000
DAY = 86_400_000
FINE = Health(good=True, said="ok")


def said(
    *nodes, groups=(), hours=None, waiting=None, seen=(), retention=None, offsets=None, **flow
):
    counted = Counted([*groups], hours or {}, 0, 0, [], waiting or {})
    seeing = Flow(tuple(nodes), **flow)
    kept = Kept(retention or {}, offsets)
    found = concerns("shop", seeing, counted=counted, seen=seen, kept=kept, now=NOW)
    return [each.said for each in found]


def test_all_is_well():
    nodes = Node("orders", "source", handled=3.0), Node("a.retry.5s", "delay", delay=5000)
    assert said(*nodes, seen=[Seen("http://localhost:1", FINE, FINE)], members={"w": 3}) == []


def test_what_a_run_says_is_in_the_way_is_said_in_its_words():
    away = Health(good=False, said="Kafka is away: no broker answers")
    assert said(seen=[Seen("http://localhost:1", FINE, away)]) == [
        "http://localhost:1/ready: Kafka is away: no broker answers"
    ]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"redrive_refused_writes": 3.0}, "3 records wait"),
        ({"redrive_data_losses_total": 1.0}, "records were lost before they were read"),
    ],
)
def test_figures_of_runs_that_are_worth_a_word(figures, words):
    [sentence] = said(seen=[Seen("http://localhost:1", FINE, FINE, figures)])
    assert words in sentence


@pytest.mark.parametrize(
    ("state", "words", "grave"),
    [
        (2.0, "the guard of orders is open: what its handler depends on is away", True),
        (1.0, "the guard of orders lets records through again", False),
    ],
)
def test_the_guard_of_a_topic_is_named_with_what_it_does(state, words, grave):
    run = Seen("http://localhost:1", FINE, FINE, guards={"orders": state, "returns": 0.0})
    counted = Counted([], {}, 0, 0, [], {})
    found = concerns("shop", Flow(), counted=counted, seen=[run], kept=Kept(), now=NOW)
    assert found == [(grave, f"http://localhost:1: {words}")]


def test_a_page_that_is_not_up_to_date_says_so():
    assert "no broker" in said(trouble="no broker answers")[0]


def test_a_page_of_which_nothing_was_seen_for_long_says_so():
    assert said(at=NOW - 120_000) == ["the page is not up to date: nothing was seen for 2m"]
    assert said(at=NOW - 3_000) == []


def test_a_topic_that_does_not_exist():
    [sentence] = said(Node("orders", "source", missing=True))
    assert "orders does not exist" in sentence


def test_a_delay_topic_that_falls_behind():
    late = Node("a.retry.5s", "delay", delay=5000, due=7, due_since=NOW - 120_000)
    assert any("7 records are due, the first for 2m" in each for each in said(late))


def test_followers_in_strict_order_do_not_fall_behind():
    waiting = Node("a.retry.behind", "delay", due=7, due_since=NOW - 120_000)
    assert not any("falls behind" in each for each in said(waiting))


STUCK = Node("orders", "source", lag=9, unread_since=NOW - 120_000)


def test_records_that_nobody_reads():
    assert said(STUCK) == [
        "nobody seems to read orders: 9 records wait, and none was handled for 2m"
    ]
    assert not said(Node("orders", "source", lag=9, unread_since=NOW - 59_000))


def test_of_a_delay_topic_those_that_are_due_are_not_read():
    late = Node("a.retry.5s", "delay", lag=9, due=1, unread_since=NOW - 60_000)
    assert said(late) == [
        "nobody seems to read a.retry.5s: 1 record waits, and none was handled for 1m"
    ]


@pytest.mark.parametrize(
    ("apps", "ready", "warned"),
    [
        (frozenset({"shop"}), FINE, False),
        (None, FINE, False),  # its metrics cannot be read
        (frozenset({"shop"}), Health(good=False, said="starting"), True),
        (frozenset({"billing"}), FINE, True),
        (frozenset(), FINE, True),  # a relay
    ],
)
def test_whoever_says_that_they_are_ready_reads(apps, ready, warned):
    run = Seen("http://localhost:1", FINE, ready, apps=apps)
    assert any("nobody seems" in each for each in said(STUCK, seen=[run])) is warned


@pytest.mark.parametrize(
    ("node", "kept", "words"),
    [
        (Node("a.retry.1h", "delay", delay=3_600_000), 3_600_000, "hardly longer"),
        (Node("orders", "source", lag=1, oldest=NOW - 6 * DAY), 7 * DAY, "record is 6d old, and"),
        (Node("a.retry.1d", "delay", lag=1, oldest=NOW - 6 * DAY), 7 * DAY, "retention deletes"),
        (Node("a.dead", "dead", oldest=NOW - 6 * DAY), 7 * DAY, "waits for a decision is 6d old"),
    ],
)
def test_retention_that_is_shorter_than_what_waits(node, kept, words):
    assert any(words in each for each in said(node, retention={node.topic: kept}, members={"w": 1}))
    assert not said(node, retention={node.topic: None}, members={"w": 1})


@pytest.mark.parametrize("node", [Node("orders", "source", lag=1), Node("a.dead", "dead")])
def test_what_is_far_from_its_end_is_not_worth_a_word(node):
    young = replace(node, oldest=NOW - 5 * DAY)
    assert not said(young, retention={node.topic: 7 * DAY})
    assert not said(node, retention={node.topic: 7 * DAY})


def test_progress_that_brokers_are_about_to_forget():
    [sentence] = said(quiet_since=NOW - 6 * DAY, offsets=7 * DAY)
    assert "no run of shop was seen for 6d, and brokers forget its progress 7d after" in sentence
    assert not said(quiet_since=NOW - 5 * DAY, offsets=7 * DAY)
    assert not said(quiet_since=NOW - 6 * DAY)  # the broker does not say
    assert not said(offsets=7 * DAY)
    idle = Seen("http://localhost:1", FINE, FINE, apps=frozenset({"shop"}))
    assert not said(quiet_since=NOW - 6 * DAY, offsets=7 * DAY, seen=[idle])


def test_a_cause_that_grows_fast_and_letters_that_wait_for_long():
    group = Group("14", "exhausted", "KeyError", 50, Counter(open=50), NOW - 9 * DAY, NOW)
    waiting = {"14": NOW - 9 * DAY}
    grows, old = said(groups=[group], hours={"14": [0] * 47 + [50]}, waiting=waiting)
    assert "KeyError grows: 50 died in this hour" in grows
    assert "50 letters wait for a decision" in old
    settled = Group("14", "exhausted", "KeyError", 50, Counter(replayed=50), NOW - 9 * DAY, NOW)
    assert said(groups=[settled], hours={"14": [1] * 48}) == []


def test_letters_that_wait_are_as_old_as_the_first_that_still_does():
    states = Counter(open=1, replayed=49)
    group = Group("14", "exhausted", "KeyError", 50, states, NOW - 30 * DAY, NOW)
    assert said(groups=[group], waiting={"14": NOW - 6 * DAY}) == []
    assert said(groups=[group], waiting={"14": NOW - 8 * DAY}) == [
        "KeyError: 1 letter waits for a decision, the first for 8d"
    ]
    counted = Counted([group], {}, 0, 0, [], {"14": NOW - 2 * DAY})
    given = {"counted": counted, "seen": (), "kept": Kept(), "now": NOW}
    assert not concerns("shop", Flow(), **given, warn_after=3 * DAY)
    [warned] = concerns("shop", Flow(), **given, warn_after=DAY)
    assert "1 letter waits" in warned.said


def test_quantiles_of_buckets():
    assert quantile({}, 0.5) is None
    assert quantile({0.1: 0.0, float("inf"): 0.0}, 0.5) is None
    assert quantile({0.1: 5.0, 1.0: 9.0, float("inf"): 10.0}, 0.5) == 0.1
    assert quantile({0.1: 5.0, 1.0: 9.0, float("inf"): 10.0}, 0.99) == 1.0
