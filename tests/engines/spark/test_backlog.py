"""A backlog of parked records is no reason for fresh ones to wait, nor a held one for a due one."""

from __future__ import annotations

import pytest
from running import World

from redrive.envelope import fresh
from redrive.record import Record, Write

APP = """
    app = App(NAME, retry=RetryPolicy("1s"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        if ctx.attempt > 1:
            time.sleep({pause})
        ctx.send(topic("out" if ctx.attempt == 1 else "late"), record.value)
"""


def park(world: World, count: int) -> None:
    """Put records into the delay topic, as if they had failed once."""
    writes = []
    for number in range(count):
        origin = Record(world.topic("in"), 0, number)
        envelope = fresh(origin, app=world.prefix, message_id=str(number), now=0)
        headers = (*envelope.headers(()), ("redrive-attempt", b"2"))
        writes.append(Write(f"{world.prefix}.retry.1s", b"%d" % number, b"%d" % number, headers))
    world.publisher.publish(writes)


# That a lane keeps to its share of the slots is in tests/unit/engines/spark/test_slots.py.
@pytest.mark.chaos
@pytest.mark.parametrize(("backlog", "pause"), [(4000, 0.004), (100_000, 0.0005)])
def test_a_backlog_of_due_records_does_not_stop_the_main_lane(world, start, backlog, pause):
    target = world.app(APP.format(pause=pause), partitions=4)
    for name in ("out", "late"):
        world.create(world.topic(name), 4)
    park(world, backlog)
    run = start(target)
    world.wait(run, "the first parked records", lambda: world.count("late") > 0)
    world.send("in", *(b"%d" % number for number in range(200)))
    world.wait(run, "all fresh records", lambda: world.count("out") == 200)
    assert world.count("late") < backlog, "the backlog was over before the fresh records came"
    world.wait(run, "the backlog", lambda: world.count("late") == backlog, timeout=240)
    run.stop()
    assert len({*world.values("late")}) == backlog
