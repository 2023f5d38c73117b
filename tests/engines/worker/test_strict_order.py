"""Strict order on the worker: rooms follow their source partition, over rebalances and kills."""

from __future__ import annotations

import pytest
from guarantees import EffectsInOrder, EveryRecordProcessed, OrderKept
from processing import processing

STRICT = """
    from redrive import RetryPolicy

    app = App(NAME, ordering="strict", concurrency=16, retry=RetryPolicy("200ms 200ms 200ms"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        told = {"partition": record.partition, "offset": record.offset, "key": str(record.key)}
        note(what="start", pid=os.getpid(), **told)
        if int(record.value) % 11 == 0 and ctx.attempt <= 1 + int(record.value) % 3:
            raise ConnectionError("not now")
        note(what="end", pid=os.getpid(), **told)
"""
ROOMS = ("retry.200ms", "retry.behind")


def waits(world):
    return sum(world.lag(topic) for topic in ("in", *ROOMS))


def wait_for_the_end(world, run):
    world.wait(run, "the end of it", lambda: waits(world) == 0, timeout=200)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_parked_record_is_not_overtaken_by_its_key(world, protocol):
    with processing(world, STRICT, "--group-protocol", protocol) as suite:
        suite.send(1_000)
        run = suite.start()
        wait_for_the_end(world, run)
        suite.send(1_000)
        wait_for_the_end(world, run)
        run.stop()
        assert run.wait(1) == 0, run.output()
        suite.check(EveryRecordProcessed(), OrderKept("key"), EffectsInOrder())
    assert world.count("retry.behind") > 0


def test_kills_and_rebalances_lose_nothing_and_keep_the_order(world):
    with processing(world, STRICT) as suite:
        first, second = suite.start(), suite.start()
        suite.send(2_000)
        suite.wait_for(500)
        first.kill()
        suite.send(1_000)
        suite.wait_for(1_500, second)
        third = suite.start()
        suite.send(1_000)
        suite.wait_for(2_500, third)
        second.stop()
        assert second.wait(1) == 0, second.output()
        wait_for_the_end(world, third)
        third.stop()
        suite.check(EveryRecordProcessed(), EffectsInOrder())
