"""Strict order: heads fail again and again, while followers arrive; on every engine."""

from __future__ import annotations

import pytest
from guarantees import EffectsInOrder, EveryRecordProcessed, everything

from redrive.record import Write

STRICT = """
    app = App(NAME, ordering="strict", concurrency={concurrency}, retry=RetryPolicy("300ms 500ms"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        number = int(record.value)
        if number % 11 == 0 and ctx.attempt <= 1 + number % 2:
            raise ConnectionError("not now")
        note(what="end", partition=record.partition, offset=record.offset, key=str(record.key))
"""
ROOMS = ("in", "retry.300ms", "retry.500ms", "retry.behind")


def send(world, numbers):
    topic = world.topic("in")
    world.publisher.publish([Write(topic, b"%d" % (n % 7), b"%d" % n) for n in numbers])


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_parked_record_is_not_overtaken_by_its_key(world, start, concurrency):
    target = world.app(STRICT.format(concurrency=concurrency))
    run = start(target)
    for part in range(10):
        send(world, range(part * 50, part * 50 + 50))
        seen = max(0, part * 50 - 100)
        world.wait(run, "some effects", lambda seen=seen: len(world.notes()) >= seen, timeout=120)
    world.wait(run, "the end", lambda: not sum(map(world.lag, ROOMS)), timeout=120)
    run.stop()
    sent = everything(world, "in")
    for guarantee in (EveryRecordProcessed(), EffectsInOrder()):
        guarantee.check(sent, world.notes())
    assert world.count("retry.behind") > 0
