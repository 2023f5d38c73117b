"""Room: what did not fit into a transaction is tried in smaller ones, down to the smallest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.kafka.room import Room, parts, room_of
from redrive.messages import weight
from redrive.record import Write
from redrive.tuning import TRANSACTION_BYTES, TRANSACTION_WRITES


def test_batches_become_smaller_until_each_message_is_alone():
    room = Room()
    tried = [room.batch]
    while room.smaller_batches(room.batch):
        tried.append(room.batch)
    assert tried == [1_000_000, 100_000, 10_000, 1_000, 1]
    assert room.batch == 1


def test_two_that_learn_the_same_at_once_make_one_step():
    room = Room()
    assert room.smaller_batches(1_000_000)
    assert room.smaller_batches(1_000_000)
    assert room.batch == 100_000


def test_batches_that_are_small_by_a_setting_become_smaller_from_there():
    room = Room()
    assert room.smaller_batches(50_000)
    assert room.batch == 10_000


def test_transactions_that_are_too_late_become_smaller_and_never_empty():
    room = Room()
    for _ in range(100):
        room.was_late()
    assert room.writes == 1
    assert room.bytes >= 1
    for _ in range(100):
        room.was_in_time([Write("t", None, b"v")] * room.writes, 0.1)
    assert (room.writes, room.bytes) == (TRANSACTION_WRITES, TRANSACTION_BYTES)


@pytest.mark.parametrize(("part", "share"), [(0.4, 0.1), (1.0, 0.6)])
def test_they_do_not_grow_by_what_says_nothing_about_larger_ones(part, share):
    """Small ones are always in time, and what took half of its time would not be if doubled."""
    room = Room()
    room.was_late()
    room.was_in_time([Write("t", None, b"v")] * int(part * room.writes), share)
    assert room.writes == TRANSACTION_WRITES // 2


@given(st.lists(st.lists(st.integers(0, 40), max_size=5), max_size=10))
def test_as_many_records_fit_as_there_is_room_for_and_one_at_least(sizes):
    room = Room()
    while room.writes > 9:
        room.was_late()
    limit = 300
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Room, "bytes", limit)
        whose = [[Write("t", None, b"v" * size) for size in each] for each in sizes]
        fits = room.fitting(whose)

    def takes(count):
        writes = [write for each in whose[:count] for write in each]
        return len(writes) <= room.writes and weight(writes) <= limit

    assert takes(fits) or fits == 1
    assert fits == len(whose) or not takes(fits + 1)


def test_it_is_one_for_each_cluster():
    assert room_of("a:1") is room_of("a:1")
    assert room_of("a:1") is not room_of("b:1")


def test_parts_have_no_more_bytes_than_was_said_or_one_message():
    sizes = [10, 300, 20, 30, 2000, 5, 5]
    writes = [Write("out", None, b"x" * size) for size in sizes]
    found = list(parts(writes, 500))
    assert [write for part in found for write in part] == writes
    assert [[len(write.value or b"") for write in part] for part in found] == [
        [10, 300],
        [20, 30],
        [2000],
        [5, 5],
    ]
    assert list(parts([], 500)) == []
