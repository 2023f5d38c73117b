"""What is ahead of progress: how much of it is due, since when, and when the next will be."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from redrive.engines.ahead import Ahead, Dues, Place
from redrive.record import TopicPartition

DELAY = 60_000
PLACE = TopicPartition("shop.retry.1m", 0)


class Topic:
    """A delay topic of one partition: the times at which its records were appended."""

    def __init__(self):
        self.times = []
        self.position = 0
        self.asked = 0
        self.dues = Dues(self.appended_since)

    def appended_since(self, times):
        self.asked += 1
        return {place: self._since(time) for place, time in times.items()}

    def _since(self, time):
        first = bisect_left(self.times, time)
        return None if first == len(self.times) else (first, self.times[first])

    def look(self, by):
        bounds = {PLACE: (self.position, len(self.times))}
        return self.dues.look(by, bounds, {PLACE: DELAY})[PLACE]


@pytest.fixture
def topic():
    return Topic()


def test_what_only_waits_is_not_due(topic):
    topic.times = [1000, 2000, 2000, 9000]
    assert topic.look(60_999) == Place(4, 0, None, 61_000)
    assert topic.look(61_000) == Place(4, 1, 61_000, 62_000)
    assert topic.look(62_500) == Place(4, 3, 61_000, 69_000)
    topic.position = 1
    assert topic.look(62_600) == Place(3, 2, 62_000, 69_000)
    topic.position = 3
    assert topic.look(62_700) == Place(1, 0, None, 69_000)
    assert topic.look(69_000) == Place(1, 1, 69_000, None)
    topic.position = 4
    assert topic.look(69_500) == Place(0)


def test_an_old_time_is_not_that_of_a_record_that_came_later(topic):
    topic.times, topic.position = [1000], 1
    topic.look(70_000)
    topic.times.append(5_000_000)
    assert topic.look(5_070_000).due_since == 70_000, "no earlier than it was not there"
    topic.look(5_080_000)
    topic.position = 2
    topic.look(5_090_000)
    topic.times.append(6_000_000)
    assert topic.look(6_000_000) == Place(1, 0, None, 6_060_000)
    assert topic.look(6_070_000).due_since == 6_060_000


@pytest.mark.parametrize("late", [0, 900, 40_000, 7_200_000])
def test_of_what_was_due_before_the_first_look_it_is_found_out(topic, late):
    now = 1_000_000_000
    topic.times = [now - DELAY - late, now - DELAY, now]
    found = topic.look(now)
    assert (found.due, found.next_due) == (2, now + DELAY)
    assert late / 2 <= now - found.due_since + 1000 <= late + 1000
    asked = topic.asked
    assert topic.look(now + 500).due_since == found.due_since
    assert topic.asked == asked + 1, "once is enough"


def test_for_ever_is_not_searched_for_ever(topic):
    topic.times = [-(10**15)]
    assert topic.look(10**12).due_since < 10**12 - 20 * 86_400_000
    assert topic.asked < 30


def test_while_nothing_moves_what_is_remembered_stays_bounded(topic):
    topic.times = list(range(0, 1_000_000, 100))
    first = topic.look(DELAY).due_since
    for by in range(DELAY, DELAY + 1_000_000, 1000):
        assert topic.look(by).due_since == first
    known = {}
    for topic.position in range(0, 10_000, 10):
        known[topic.position] = topic.look(DELAY + 1_000_000).due_since
    assert len({*known.values()}) < 100
    assert DELAY + 500_000 - 64_000 <= known[5000] <= DELAY + 500_000


def test_progress_that_was_set_back_and_a_topic_that_was_recreated_start_again(topic):
    topic.times = [1000, 2000, 3000]
    topic.look(61_000)
    topic.position = 2
    topic.look(63_000)
    topic.position = 0
    assert topic.look(63_500).due_since <= 63_500
    topic.times, topic.position = [900_000], 0
    assert topic.look(900_000) == Place(1, 0, None, 960_000)


def test_followers_in_strict_order_are_ahead_and_never_due():
    places = {TopicPartition("behind", 0): Place(5, 5, 10, None)}
    assert Ahead.of(["behind"], {"behind": 0}, places) == Ahead({"behind": 5}, {"behind": 0})


def test_topics_are_summed_up_over_their_partitions():
    places = {
        TopicPartition("orders", 0): Place(3),
        TopicPartition("orders", 1): Place(4),
        TopicPartition("r", 0): Place(5, 2, 10, 40),
        TopicPartition("r", 1): Place(6, 1, 20, 30),
    }
    assert Ahead.of(["orders", "refunds", "r", "s"], {"r": 30, "s": 60}, places) == Ahead(
        {"orders": 7, "refunds": 0, "r": 11, "s": 0}, {"r": 3, "s": 0}, {"r": 10}, {"r": 30}
    )
