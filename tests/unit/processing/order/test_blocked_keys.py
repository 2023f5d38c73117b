from __future__ import annotations

from redrive.ports import Position
from redrive.processing.order.blocked_keys import BlockedKeys, Origin, Spot, Stage
from redrive.record import TopicPartition

SOURCE = TopicPartition("orders", 0)
DELAY = TopicPartition("items.retry.5m", 0)
LATER = TopicPartition("items.retry.1h", 0)
BEHIND = TopicPartition("items.retry.behind", 0)
A, B = b"a", b"b"


def parked(keys, key=A, offset=0, at=0):
    """A record of the source fails, and waits in the delay topic."""
    keys.source_read(offset + 1)
    keys.leaves(key, Origin(offset), Stage(2), Spot(SOURCE, offset))
    assert keys.arrives(Spot(DELAY, at), key, Origin(offset), Stage(2))


def followed(keys, offset, at, key=A):
    """A record goes behind it."""
    keys.source_read(offset + 1)
    assert keys.fresh(key, Spot(SOURCE, offset)) == "behind"
    keys.leaves(key, Origin(offset), Stage(1), Spot(SOURCE, offset))
    assert keys.arrives(Spot(BEHIND, at), key, Origin(offset), Stage(1))


def test_a_key_of_which_nothing_waits_is_free():
    keys = BlockedKeys()
    assert not keys
    assert keys.fresh(A, Spot(SOURCE, 0)) == "run"


def test_a_parked_record_blocks_its_key_and_no_other():
    keys = BlockedKeys()
    parked(keys)
    assert keys.fresh(A, Spot(SOURCE, 1)) == "behind"
    assert keys.fresh(B, Spot(SOURCE, 2)) == "run"


def test_it_runs_once_its_place_in_the_source_is_committed():
    keys = BlockedKeys()
    parked(keys)
    assert keys.ready(A) == []
    keys.committed(SOURCE, Position(1))
    assert keys.ready(A) == [Spot(DELAY, 0)]
    assert keys.may_run(Spot(DELAY, 0))


def test_a_key_is_free_only_when_the_end_of_all_of_it_is_committed():
    keys = BlockedKeys()
    parked(keys)
    keys.committed(SOURCE, Position(1))
    keys.ends(Spot(DELAY, 0))
    assert keys.fresh(A, Spot(SOURCE, 1)) == "behind"
    keys.committed(DELAY, Position(1))
    assert keys.fresh(A, Spot(SOURCE, 1)) == "run"
    assert not keys


def test_what_is_done_beyond_the_committed_offset_counts_as_committed():
    from redrive.processing.progress import done_beyond

    keys = BlockedKeys()
    parked(keys, at=7)
    keys.committed(SOURCE, Position(1))
    keys.ends(Spot(DELAY, 7))
    keys.committed(DELAY, Position(3, done_beyond.encode_offsets(3, [5])))
    assert keys
    keys.committed(DELAY, Position(3, done_beyond.encode_offsets(3, [5, 7])))
    assert not keys


def test_followers_run_in_order_after_the_end_of_the_head_is_committed():
    keys = BlockedKeys()
    parked(keys)
    followed(keys, 1, at=0)
    followed(keys, 2, at=1)
    keys.committed(SOURCE, Position(3))
    assert keys.ready(A) == [Spot(DELAY, 0)]
    keys.ends(Spot(DELAY, 0))
    assert keys.ready(A) == []
    keys.committed(DELAY, Position(1))
    assert keys.ready(A) == [Spot(BEHIND, 0), Spot(BEHIND, 1)]


def test_a_busy_key_catches_up_while_others_of_it_arrive():
    keys = BlockedKeys()
    parked(keys)
    followed(keys, 1, at=0)
    keys.committed(SOURCE, Position(2))
    keys.ready(A)
    keys.ends(Spot(DELAY, 0))
    keys.committed(DELAY, Position(1))
    followed(keys, 2, at=1)  # whose place in the source is not committed yet
    assert keys.ready(A) == [Spot(BEHIND, 0)]


def test_those_behind_a_follower_that_fails_wait_again():
    keys = BlockedKeys()
    parked(keys)
    followed(keys, 1, at=0)
    followed(keys, 2, at=1)
    keys.committed(SOURCE, Position(3))
    keys.ready(A)
    keys.ends(Spot(DELAY, 0))
    keys.committed(DELAY, Position(1))
    keys.ready(A)
    keys.leaves(A, Origin(1), Stage(2), Spot(BEHIND, 0))
    assert not keys.may_run(Spot(BEHIND, 1))


def test_of_two_copies_the_one_that_has_come_further_counts():
    keys = BlockedKeys(read_to=1, known_end=1)
    keys.found(Spot(DELAY, 0), A, Origin(0), Stage(2))
    keys.found(Spot(LATER, 0), A, Origin(0), Stage(3))
    assert keys.ready(A) == [Spot(LATER, 0)]
    assert keys.is_copy(Spot(DELAY, 0))
    assert not keys.arrives(Spot(DELAY, 0), A, Origin(0), Stage(2))


def test_a_late_copy_of_what_has_ended_is_dropped_and_blocks_its_key_until_that_is_committed():
    keys = BlockedKeys(read_to=5)
    assert not keys.arrives(Spot(DELAY, 3), A, Origin(2), Stage(2))
    assert keys.fresh(A, Spot(SOURCE, 5)) == "behind"
    keys.committed(DELAY, Position(4))
    assert keys.fresh(A, Spot(SOURCE, 5)) == "run"


def test_a_copy_of_what_is_under_way_is_not_dropped():
    keys = BlockedKeys(read_to=5)
    keys.is_under_way = {2}.__contains__
    assert keys.arrives(Spot(DELAY, 3), A, Origin(2), Stage(2))


def test_a_dead_letter_that_is_replayed_is_not_dropped():
    keys = BlockedKeys(read_to=5)
    assert keys.arrives(Spot(DELAY, 3), A, Origin(2, "op-1"), Stage(1, 99))
    assert keys.ready(A) == [Spot(DELAY, 3)]


def test_a_record_that_waits_already_is_a_copy_when_it_is_read_from_the_source():
    keys = BlockedKeys(known_end=2)
    keys.found(Spot(DELAY, 0), A, Origin(0), Stage(2))
    assert keys.fresh(A, Spot(SOURCE, 0)) == "copy"


def test_what_waits_runs_only_when_the_source_was_read_past_it():
    keys = BlockedKeys(known_end=2)
    keys.found(Spot(DELAY, 0), A, Origin(1), Stage(2))
    assert keys.ready(A) == []
    keys.changed.clear()
    keys.source_read(2)
    assert keys.changed == {A}
    assert keys.ready(A) == [Spot(DELAY, 0)]


def test_what_waits_of_a_topic_that_was_made_again_does_not_wait_for_ever():
    keys = BlockedKeys(read_to=0, known_end=2)
    keys.found(Spot(DELAY, 0), A, Origin(5_000), Stage(2))
    assert keys.ready(A) == [Spot(DELAY, 0)]


def test_with_too_many_behind_it_the_next_one_waits():
    keys = BlockedKeys(max_behind=2)
    parked(keys)
    followed(keys, 1, at=0)
    assert keys.fresh(A, Spot(SOURCE, 2)) == "wait"
    assert keys.behind(A) == 2
    assert keys.most_behind() == (A, 2)


def test_a_key_can_wait_for_its_dead_letter_until_that_is_replayed():
    keys = BlockedKeys()
    parked(keys)
    keys.committed(SOURCE, Position(1))
    keys.holds(A, Origin(0))
    assert keys.ready(A) == []
    keys.arrives(Spot(DELAY, 1), A, Origin(0, "op-1"), Stage(1, 99))
    keys.committed(DELAY, Position(1))
    assert keys.ready(A) == [Spot(DELAY, 1)]


def test_records_of_a_key_are_in_the_order_of_their_offsets_wherever_and_whenever_written():
    keys = BlockedKeys(read_to=9, known_end=9)
    keys.found(Spot(DELAY, 0), A, Origin(3), Stage(4))
    keys.found(Spot(BEHIND, 0), A, Origin(1), Stage(1))
    assert keys.ready(A) == [Spot(BEHIND, 0)]


def three_let_go(keys):
    keys.source_read(9)
    for at, offset in enumerate((5, 6, 7)):
        keys.found(Spot(BEHIND, at), A, Origin(offset), Stage(1))
    assert keys.ready(A) == [Spot(BEHIND, 0), Spot(BEHIND, 1), Spot(BEHIND, 2)]


def test_all_that_was_let_go_behind_one_that_fails_waits_again_wherever_it_stands():
    keys = BlockedKeys(ahead=3)
    three_let_go(keys)
    for offset in range(4):  # an operator drives old ones again
        assert keys.arrives(Spot(DELAY, offset), A, Origin(offset, "op-1"), Stage(1))
    keys.leaves(A, Origin(5), Stage(2), Spot(BEHIND, 0))
    assert not any(keys.may_run(Spot(BEHIND, at)) for at in range(3))


def test_those_that_were_let_go_wait_again_for_one_that_arrives_and_comes_before_them():
    keys = BlockedKeys()
    three_let_go(keys)
    assert keys.arrives(Spot(DELAY, 0), A, Origin(3, "op-1"), Stage(1))
    assert not keys.may_run(Spot(BEHIND, 0))
    assert keys.ready(A) == [Spot(DELAY, 0)]


def test_nothing_of_a_key_is_let_go_while_it_is_busy_in_another_room():
    keys = BlockedKeys(read_to=9)
    keys.found(Spot(DELAY, 0), A, Origin(3), Stage(2))
    assert keys.ready(A, busy=[BEHIND]) == []
    assert keys.ready(A, busy=[DELAY]) == [Spot(DELAY, 0)]


def test_one_that_stands_before_those_that_wait_goes_behind_however_many_they_are():
    keys = BlockedKeys(max_behind=2, read_to=1, known_end=9)
    for at, offset in enumerate((5, 6)):
        keys.found(Spot(BEHIND, at), A, Origin(offset), Stage(1))
    assert keys.fresh(A, Spot(SOURCE, 1)) == "behind"
    assert keys.fresh(A, Spot(SOURCE, 7)) == "wait"


def test_what_waits_in_a_room_is_known_without_what_is_one_too_many():
    keys = BlockedKeys()
    keys.found(Spot(BEHIND, 3), A, Origin(1), Stage(1))
    keys.found(Spot(BEHIND, 4), A, Origin(2), Stage(1))
    keys.found(Spot(DELAY, 0), A, Origin(1), Stage(2))  # it has come further
    assert keys.waiting_in(BEHIND) == {4}
    assert keys.waiting_in(DELAY) == {0}
