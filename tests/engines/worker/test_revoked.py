"""While a partition that goes is waited for, all else goes on."""

from __future__ import annotations

import pytest

from redrive.record import Write
from redrive.testing.memory_broker import partition_for

HANGS = """
    again = InPlace(None, Backoff("10ms", cap="10ms"))
    app = App(NAME, concurrency=4, retry=RetryPolicy(first=again))

    @app.handler(topic("in"){timeout})
    def handle(record, ctx):
        note(value=record.value.decode(), partition=record.partition)
        if Path(NOTES).with_name("go").exists():
            return
        if record.value == b"again":
            raise OSError("not yet")
        while not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)  # this is the hanging itself: no test waits by it
"""


@pytest.fixture
def rebalance(world, start):
    """One worker has both partitions, each with a handler that hangs, when another one joins."""

    def begin(timeout, again):
        target = world.app(HANGS.replace("{timeout}", timeout), partitions=2)
        run = start(target, instance="one", revoke_wait="2m")
        world.wait(run, "both", lambda: run.worker.assigned == 2)
        topic = world.topic("in")
        for partition in range(2):
            keys = [b"%d" % n for n in range(100) if partition_for(b"%d" % n, 2) == partition]
            world.publisher.publish([Write(topic, keys[0], b"hangs")])
            world.publisher.publish([Write(topic, keys[1], b"again")] if again else [])
        world.wait(run, "they hang", lambda: count(world, "hangs") >= 2)
        world.wait(run, "others fail", lambda: not again or count(world, "again") >= 2)
        return run, start(target, instance="other")

    yield begin
    (world.folder / "go").touch()


def count(world, value):
    return sum(note["value"] == value for note in world.notes())


def test_others_are_tried_again_and_the_worker_is_alive(world, rebalance):
    run, other = rebalance("", again=True)
    world.wait(run, "it begins", lambda: run.worker.counting.rebalances["revoked"] == 1)
    before, polled = count(world, "again"), run.worker.member.loop.polled_at
    world.wait(run, "tries", lambda: count(world, "again") > before + 10)
    assert run.worker.member.loop.polled_at > polled
    assert run.worker.assigned == 2  # it still waits
    (world.folder / "go").touch()
    world.wait(other, "the rest", lambda: world.lag("in") == 0)
    other.stop()
    run.stop()


def test_one_that_exceeds_its_time_out_is_not_waited_for(world, rebalance):
    run, other = rebalance(', timeout="5s", retry=RetryPolicy()', again=False)
    world.wait(other, "its partition", lambda: other.worker.assigned == 1)
    assert run.worker.counting.hung >= 1
    world.wait(other, "all is buried", lambda: world.count("dead") == 2)
    (world.folder / "go").touch()
    other.stop()
    run.stop()
