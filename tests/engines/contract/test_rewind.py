"""Progress that was put back: the next run handles the records in range again, on either engine."""

from __future__ import annotations

from collections import Counter

import pytest
from running import OnSpark

from redrive.rewind import Where, open_rewinder

APP = """
    app = App(NAME, retry=RetryPolicy("1s"), delivery="{delivery}")

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value.decode())
"""
VALUES = [b"%d" % number for number in range(40)]


def handled(world):
    return Counter(note["value"] for note in world.notes())


def rewound(world, target):
    """Put the app's progress back by half; gives the records that are to be handled again."""
    ends = {place: at.offset for place, at in world.committed("in").items()}
    starts = {place: end // 2 for place, end in ends.items()}
    where = Where(offsets=tuple(f"{place}@{start}" for place, start in starts.items()))
    rewinder = open_rewinder(world.loaded(target), world.settings, "alice")
    plan = rewinder.plan(where)
    done = rewinder.rewind(where, why="a test")
    again = {
        record.value.decode()
        for place, start in starts.items()
        for record in world.log.read(place, start, world.log.bounds(place)[1])
    }
    assert (plan.records, done.status, done.done) == (len(again), "done", len(again))
    return again


def test_exactly_the_records_in_range_are_handled_again(world, start):
    target = world.app(APP.format(delivery="transaction"))
    run = start(target)
    world.send("in", *VALUES)
    world.wait(run, "the work", lambda: world.lag("in") == 0, 240)
    run.stop()
    once = handled(world)
    again = rewound(world, target)
    run = start(target)
    world.wait(run, "the work", lambda: world.lag("in") == 0, 240)
    run.stop()
    assert handled(world) - once == dict.fromkeys(again, 1)


def test_a_run_on_spark_that_nobody_can_see_stops(world, spark_session):
    target = world.app(APP.format(delivery="at-least-once"))
    run = OnSpark(spark_session).start(target, world.bootstrap)
    try:
        world.send("in", *VALUES)
        world.wait(run, "the work", lambda: world.lag("in") == 0, 240)
        again = rewound(world, target)
        with pytest.raises(Exception, match="was put back by `redrive rewind`"):
            run.handle.await_termination(120)
        assert set(handled(world).values()) == {1}
        run = OnSpark(spark_session).start(target, world.bootstrap)
        world.wait(run, "the work", lambda: world.lag("in") == 0, 240)
        assert {value for value, times in handled(world).items() if times == 2} == again
    finally:
        run.kill()
