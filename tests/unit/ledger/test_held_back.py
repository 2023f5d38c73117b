"""What Kafka refuses is held back: as little as the order allows, a little longer each time."""

from __future__ import annotations

import pytest

from redrive.ledger.held_back import HeldBack, Taken
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
def held_back(clock):
    return HeldBack(clock)


def row(number, key=b"k", topic="orders"):
    return Taken(number, Write(topic, key, b"v"))


def test_a_row_with_a_key_holds_its_key(held_back):
    assert held_back.hold(row(1), "too large")
    assert held_back.now() == (frozenset(), {("orders", b"k")}, frozenset())


def test_a_row_without_key_holds_itself(held_back):
    held_back.hold(row(1, key=None), "too large")
    assert held_back.now() == (frozenset(), frozenset(), {1})


def test_a_topic_holds_all_of_it(held_back):
    held_back.hold_topic("orders", "missing")
    assert held_back.now().topics == {"orders"}


def test_waiting_times_double_up_to_a_limit(held_back, clock):
    waits = []
    for _ in range(9):
        held_back.hold_topic("orders", "missing")
        begin = clock.now
        while held_back.now().topics:
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


def test_many_rows_of_one_attempt_are_one_refusal(held_back, clock):
    for number in range(4000):
        held_back.hold(row(number), "too large")
        held_back.hold_topic("gone", "missing")
    clock.now += 1
    assert held_back.now() == (frozenset(), frozenset(), frozenset())


def test_only_the_first_refusal_is_news(held_back, clock):
    assert held_back.hold(row(1), "too large")
    clock.now += 1
    assert not held_back.hold(row(1), "too large")


def test_what_was_published_is_free_again(held_back):
    held_back.hold(row(1), "too large")
    held_back.hold(row(2, key=None), "too large")
    held_back.hold_topic("orders", "missing")
    held_back.published([row(1), row(2, key=None)])
    assert held_back.reasons() == {}
    assert held_back.hold(row(1), "too large")  # and a new refusal is news


def test_others_stay_held_when_something_is_published(held_back):
    held_back.hold(row(1, key=b"a"), "too large")
    held_back.published([row(2, key=b"b")])
    assert held_back.now().keys == {("orders", b"a")}


def test_many_keys_of_a_topic_become_the_topic(held_back):
    for number in range(MOST_HELD_OF_A_TOPIC):
        held_back.hold(row(number, key=b"%d" % number), "too large")
    assert held_back.now().topics == frozenset()
    held_back.hold(row(-1, key=b"one more"), "too large")
    held_back.hold(row(-1, key=b"of another", topic="other"), "too large")
    assert held_back.now().topics == {"orders"}


def test_reasons_are_reported_by_topic(held_back):
    held_back.hold(row(1, key=b"a"), "first")
    held_back.hold(row(2, key=b"b"), "second")
    held_back.hold_topic("gone", "missing")
    assert held_back.reasons() == {"orders": (2, "second"), "gone": (1, "missing")}
