"""Room: what did not fit into a transaction is tried in smaller ones, down to the smallest."""

from __future__ import annotations

from redrive.kafka.room import MOST_BYTES, MOST_WRITES, Room, room_of


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
        room.was_in_time()
    assert (room.writes, room.bytes) == (MOST_WRITES, MOST_BYTES)


def test_it_is_one_for_each_cluster():
    assert room_of("a:1") is room_of("a:1")
    assert room_of("a:1") is not room_of("b:1")
