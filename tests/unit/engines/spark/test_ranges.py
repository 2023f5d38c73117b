"""How ranges are cut and shared out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.engines import offset_reset
from redrive.engines.offset_reset import View
from redrive.engines.spark import ranges
from redrive.engines.spark.ranges import Range
from redrive.ports import Position
from redrive.record import TopicPartition

PLACES = [TopicPartition("t", number) for number in range(20)]
sizes = st.lists(st.integers(0, 1000), max_size=20)


def of_sizes(given: list[int], metadata: str = "") -> list[Range]:
    return [
        Range(*place, 10, 10 + size, None, metadata)
        for place, size in zip(PLACES, given, strict=False)
    ]


@given(sizes, st.integers(0, 5000))
def test_shares_are_all_that_is_there_and_never_more_than_asked_for(given_sizes, most):
    wanted = dict(zip(PLACES, given_sizes, strict=False))
    shares = ranges.fair_shares(wanted, most)
    assert all(0 <= shares[place] <= size for place, size in wanted.items())
    assert sum(shares.values()) == min(most, sum(given_sizes))


@given(sizes, st.integers(1, 5000))
def test_nobody_gets_less_than_another_unless_it_needs_less(given_sizes, most):
    wanted = dict(zip(PLACES, given_sizes, strict=False))
    shares = ranges.fair_shares(wanted, most)
    largest = max(shares.values(), default=0)
    assert all(shares[place] >= min(size, largest - 1) for place, size in wanted.items())


@given(st.lists(st.integers(1, 1000), max_size=20), st.integers(1, 12))
def test_packing_loses_nothing_and_keeps_its_limit(given_sizes, tasks):
    given_ranges = of_sizes(given_sizes)
    packed = ranges.pack(given_ranges, tasks)
    assert sorted(each for task in packed for each in task) == sorted(given_ranges)
    assert len(packed) == min(tasks, len(given_ranges))
    assert all(packed)


def test_the_largest_is_not_packed_with_another_while_there_is_room():
    packed = ranges.pack(of_sizes([900, 10, 20, 30]), 2)
    assert sorted(sorted(each.size for each in task) for task in packed) == [[10, 20, 30], [900]]


def test_ranges_begin_where_progress_is_and_carry_what_was_committed_with_it():
    found = ranges.ahead(
        {PLACES[0]: Position(5, "r1:x"), PLACES[1]: Position(7)},
        {PLACES[0]: 9, PLACES[1]: 7},
        {"t": 1000},
        100,
    )
    assert found == [Range("t", 0, 5, 9, 1000, "r1:x")]


# Where partitions begin


def test_a_first_start_is_from_where_it_was_asked_for():
    views = {PLACES[0]: View(3, 9, None), PLACES[1]: View(0, 0, None)}
    assert offset_reset.begin_at(views, "earliest") == {PLACES[0]: 3, PLACES[1]: 0}
    assert offset_reset.begin_at(views, "latest") == {PLACES[0]: 9, PLACES[1]: 0}


def test_an_added_partition_begins_at_its_beginning_whatever_was_asked_for():
    views = {PLACES[0]: View(0, 9, Position(9)), PLACES[1]: View(0, 4, None)}
    assert offset_reset.begin_at(views, "latest") == {PLACES[1]: 0}


def test_another_topics_progress_says_nothing_of_a_topic_that_was_added():
    other = TopicPartition("other", 0)
    views = {PLACES[0]: View(0, 9, Position(9)), other: View(0, 4, None)}
    assert offset_reset.begin_at(views, "latest") == {other: 4}


# What is gone


def test_deleted_unread_is_said_with_its_number():
    views = {PLACES[0]: View(10, 20, Position(4)), PLACES[1]: View(10, 20, Position(10))}
    (lost,) = offset_reset.lost(views)
    assert str(lost) == (
        "t[0]: the committed offset is 4, but the log begins at 10: up to 6 records were deleted"
        " unread"
    )


def test_progress_past_the_end_is_said():
    (lost,) = offset_reset.lost({PLACES[0]: View(0, 3, Position(4))})
    assert "the committed offset is 4, but the log ends at 3: the topic was recreated" in str(lost)


def test_progress_at_the_very_end_is_not_lost():
    assert (
        offset_reset.lost({PLACES[0]: View(0, 4, Position(4)), PLACES[1]: View(0, 4, None)}) == []
    )
