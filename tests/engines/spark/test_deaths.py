"""Records that kill the Python worker, and a broker that is away, on a real Spark."""

from __future__ import annotations

import pytest
from running import FAILING_ONCE

from redrive.envelope import parse
from redrive.record import Write

DEADLY = """
    import ctypes, signal

    app = App(NAME, retry=RetryPolicy("1s"))
    DEATHS = {
        b"exit": lambda: os._exit(9),
        b"segmentation fault": lambda: ctypes.string_at(0),
        b"out of memory": lambda: os.kill(os.getpid(), signal.SIGKILL),
    }

    @app.handler(topic("in"))
    def handle(record, ctx):
        if record.value in DEATHS:
            note(death=record.value.decode())
            DEATHS[record.value]()
        ctx.send(topic("out"), record.value)
"""
KILLERS = (b"exit", b"segmentation fault", b"out of memory")


def test_records_that_kill_the_worker_are_buried_and_their_neighbours_done(world, start):
    target = world.app(DEADLY, partitions=4)
    world.create(world.topic("out"), 4)
    values = [b"%d" % number for number in range(2000)]
    values[400:400] = [KILLERS[0]]
    values[1001:1001] = [KILLERS[1]]
    values[1999:1999] = [KILLERS[2]]
    headers = (("user", b"kept"),)
    world.publisher.publish(
        [Write(world.topic("in"), value, value, headers, n % 4) for n, value in enumerate(values)]
    )
    run = start(target)
    world.wait(run, "the burials", lambda: world.count("dead") >= 3, timeout=150)
    world.wait(run, "the others", lambda: world.lag("in") == 0, timeout=60)
    world.send("in", b"after")
    world.wait(run, "what came later", lambda: b"after" in world.values("out"))
    run.stop()
    assert {*world.values("out")} == {*values, b"after"} - {*KILLERS}
    letters = world.records("dead")
    assert sorted(letter.value or b"" for letter in letters) == sorted(KILLERS)
    for letter in letters:
        envelope = parse(letter.headers)
        assert letter.key == letter.value
        assert envelope.dead_reason == "killed-worker"
        assert values[envelope.origin_offset * 4 + envelope.origin_partition] == letter.value
        assert ("user", b"kept") in letter.headers
    for killer in KILLERS:
        deaths = [each for each in world.notes() if each["death"] == killer.decode()]
        assert len(deaths) >= 2  # only on proof


def _is_troubled(handle):
    """Whether a planner says so, or a task has."""
    lanes = handle.figures.lanes
    told = [lane.last_trouble for lane in lanes.values()]
    return any(told) or any(handle.status(lane).get("trouble") for lane in lanes)


@pytest.mark.chaos  # a task that meets it is in test_task_kafka.py
def test_a_broker_that_is_away_for_a_while_buries_nobody(world, start, redrive_stack):
    target = world.app(
        FAILING_ONCE.format(options='retry=RetryPolicy("1s 1s")', seconds=0.002), partitions=4
    )
    world.create(world.topic("out"), 4)
    values = [b"%d" % number for number in range(6000)]
    world.send("in", *values)
    run = start(target)
    world.wait(run, "half of it", lambda: world.count("out") >= 2000)
    broker = redrive_stack.brokers[0]
    broker.stop()
    try:
        world.wait(run, "a word about it", lambda: _is_troubled(run.handle))
    finally:
        broker.start()
    world.wait(run, "all of it", lambda: {*world.values("out")} == {*values}, timeout=150)
    run.stop()
    assert world.values("dead") == []
