"""Where progress goes back to: only ever back, and never past what is there."""

from __future__ import annotations

import pytest
from rewinding import SOURCE, World, where

from redrive import ConfigurationError
from redrive.errors import NotReadyError
from redrive.ports import Position
from redrive.processing.progress.done_beyond import decode, encode
from redrive.processing.progress.notes import MOVED, TOPIC, with_note
from redrive.rewind import Where
from redrive.rewind.targets import Covered, Span, find

VALUES = [f"v{number}" for number in range(10)]


@pytest.fixture
def world():
    return World(*VALUES)


def found(world, **given):
    return find(world.app, Where(**given), world.broker, world.progress)


def refused(world, **given):
    with pytest.raises(ConfigurationError) as error:
        found(world, **given)
    return str(error.value)


def began(world):
    """When the first record was written."""
    return world.broker.records("orders")[0].timestamp


def test_back_to_an_offset(world):
    [span] = found(world, offsets=("orders[0]@4",)).spans
    assert (span.place, span.start, span.end, span.rewound) == (SOURCE, 4, 10, Position(4))


def test_back_to_the_first_record_of_a_time(world):
    time = began(world) + 3 * 60_000
    [span] = found(world, time=time).spans
    assert span.start == 3
    [span] = found(world, time=time + 1).spans
    assert span.start == 4


def test_forwards_would_skip_records(world):
    world.send("new")
    said = refused(world, offsets=("orders[0]@11",))
    assert "is ahead of the app" in said
    assert "which is at 10" in said
    assert "skip 1 offsets" in said
    assert "rewind only goes back" in said
    assert world.committed.offset == 10


def test_a_time_that_the_app_has_not_reached_moves_nothing(world):
    world.send("new")
    assert "nothing to handle again" in refused(world, time=world.clock.now() - 60_000)


def test_a_time_after_the_last_record(world):
    assert "has handled no record of" in refused(world, time=world.clock.now() + 1)


def test_a_time_before_the_first_record_is_the_beginning(world):
    targets = found(world, time=0)
    assert (targets.spans[0].start, targets.notes) == (0, [])


def test_a_time_of_which_retention_has_left_a_part(world):
    world.broker.truncate(SOURCE, 4)
    targets = found(world, time=0)
    assert targets.spans[0].start == 4
    [said] = targets.notes
    assert said.startswith("orders[0] begins with offset 4, of ")
    assert said.endswith("what was there before is deleted")


def test_an_offset_that_retention_has_deleted(world):
    world.broker.truncate(SOURCE, 4)
    said = refused(world, offsets=("orders[0]@2",))
    assert "orders[0]@2 is deleted by retention" in said
    assert "write orders[0]@4" in said


def test_where_the_app_is_already(world):
    assert "there is nothing to handle again" in refused(world, offsets=("orders[0]@10",))


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        ("prices[0]@1", 'prices is no source topic of the app "shop"'),
        ("shop.retry.5s[0]@1", 'shop.retry.5s is a delay topic of the app "shop"'),
        ("orders[7]@1", "orders[7] does not exist: orders has 1 partition"),
        ("orders[0]", "write orders[0]@offset"),
        ("orders", "is not a place"),
    ],
)
def test_what_is_not_there(world, offset, said):
    assert said in refused(world, offsets=(offset,))


def test_a_topic_that_is_not_the_apps(world):
    assert "no source topic" in refused(world, time=0, topics=("prices",))


def test_one_offset_for_each_partition(world):
    assert "named twice" in refused(world, offsets=("orders[0]@1", "orders[0]@2"))


def test_a_time_or_offsets():
    for given in ({}, {"time": 1, "offsets": ("orders[0]@1",)}):
        with pytest.raises(ConfigurationError, match="give --to-time or --to-offset"):
            Where(**given)
    with pytest.raises(ConfigurationError, match="--topic is for --to-time"):
        where(1, topics=("orders",))


def test_an_app_that_has_handled_nothing():
    world = World()
    world.broker.forget_progress("shop")
    with pytest.raises(NotReadyError, match="has no progress in orders"):
        found(world, time=0)


def test_a_partition_in_which_nothing_was_handled():
    world = World(*VALUES)
    world.broker.grow("orders", 2)
    assert "no progress in orders[1]" in refused(world, offsets=("orders[1]@0",))
    assert [span.place for span in found(world, time=0).spans] == [SOURCE]


def test_progress_of_a_topic_that_was_recreated_says_nothing(world):
    world.progress.commit({SOURCE: with_note(Position(5), TOPIC, "another")})
    with pytest.raises(NotReadyError, match="no progress"):
        found(world, time=0)


def test_an_app_that_goes_on_under_another_name(world):
    world.progress.commit({SOURCE: with_note(world.committed, MOVED, "store")})
    with pytest.raises(NotReadyError, match='renamed to "store"'):
        found(world, time=0)


def test_what_is_complete_beyond_the_committed_offset_was_handled_too():
    position = Position(5, encode(5, [(6, 8), (9, 12)]))
    span = Span(SOURCE, 3, position)
    assert (span.end, span.rewound) == (12, Position(3))
    assert [offset for offset in range(15) if Covered(span)(offset)] == [3, 4, 6, 7, 9, 10, 11]


def test_back_to_a_time_behind_a_record_that_is_stuck():
    position = Position(5, encode(5, [(6, 8), (9, 12)]))
    span = Span(SOURCE, 10, position)
    assert span.rewound.offset == 5
    assert decode(span.rewound) == [(6, 8), (9, 10)]
    assert [offset for offset in range(15) if Covered(span)(offset)] == [10, 11]
