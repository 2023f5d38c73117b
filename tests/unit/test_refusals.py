"""What Kafka refuses is held back: as little as the order allows, a little longer each time."""

from __future__ import annotations

import pytest

from redrive.ledger.refusals import Refusals, Taken
from redrive.record import Write
from redrive.tuning import MOST_HELD_OF_A_TOPIC, REFUSED_ROW_LONGEST_WAIT


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def refusals(clock):
    return Refusals(clock)


def row(number, key=b"k", topic="orders"):
    return Taken(number, Write(topic, key, b"v"))


def test_a_row_with_a_key_holds_its_key(refusals):
    assert refusals.hold(row(1), "too large")
    assert refusals.now() == (frozenset(), {("orders", b"k")}, frozenset())


def test_a_row_without_key_holds_itself(refusals):
    refusals.hold(row(1, key=None), "too large")
    assert refusals.now() == (frozenset(), frozenset(), {1})


def test_a_topic_holds_all_of_it(refusals):
    refusals.hold_topic("orders", "missing")
    assert refusals.now().topics == {"orders"}


def test_waiting_times_double_up_to_a_limit(refusals, clock):
    waits = []
    for _ in range(9):
        refusals.hold_topic("orders", "missing")
        begin = clock.now
        while refusals.now().topics:
            clock.now += 0.5
        waits.append(clock.now - begin)
    assert waits == [
        1,
        2,
        4,
        8,
        16,
        32,
        REFUSED_ROW_LONGEST_WAIT,
        REFUSED_ROW_LONGEST_WAIT,
        REFUSED_ROW_LONGEST_WAIT,
    ]


def test_many_rows_of_one_attempt_are_one_refusal(refusals, clock):
    for number in range(4000):
        refusals.hold(row(number), "too large")
        refusals.hold_topic("gone", "missing")
    clock.now += 1
    assert refusals.now() == (frozenset(), frozenset(), frozenset())


def test_only_the_first_refusal_is_news(refusals, clock):
    assert refusals.hold(row(1), "too large")
    clock.now += 1
    assert not refusals.hold(row(1), "too large")


def test_what_was_published_is_free_again(refusals):
    refusals.hold(row(1), "too large")
    refusals.hold(row(2, key=None), "too large")
    refusals.hold_topic("orders", "missing")
    refusals.published([row(1), row(2, key=None)])
    assert refusals.reasons() == {}
    assert refusals.hold(row(1), "too large")  # and a new refusal is news


def test_others_stay_held_when_something_is_published(refusals):
    refusals.hold(row(1, key=b"a"), "too large")
    refusals.published([row(2, key=b"b")])
    assert refusals.now().keys == {("orders", b"a")}


def test_many_keys_of_a_topic_become_the_topic(refusals):
    for number in range(MOST_HELD_OF_A_TOPIC):
        refusals.hold(row(number, key=b"%d" % number), "too large")
    assert refusals.now().topics == frozenset()
    refusals.hold(row(-1, key=b"one more"), "too large")
    refusals.hold(row(-1, key=b"of another", topic="other"), "too large")
    assert refusals.now().topics == {"orders"}


def test_reasons_are_told_by_topic(refusals):
    refusals.hold(row(1, key=b"a"), "first")
    refusals.hold(row(2, key=b"b"), "second")
    refusals.hold_topic("gone", "missing")
    assert refusals.reasons() == {"orders": (2, "second"), "gone": (1, "missing")}
