"""A broker that is away for a minute, in the middle of everything: nobody is buried or lost."""

from __future__ import annotations

import threading

import pytest
from running import FAILING_ONCE

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_minute_without_broker_buries_nobody(world, start, redrive_stack, delivery):
    options = f'delivery={delivery!r}, retry=RetryPolicy("1s 1s")'
    target = world.app(FAILING_ONCE.format(options=options, seconds=0.001), partitions=4)
    world.create(world.topic("out"), 4)
    values = [b"%d" % number for number in range(20_000)]
    world.send("in", *values)
    run = start(target)
    world.wait(run, "a third of it", lambda: world.count("out") >= 6000)
    broker = redrive_stack.brokers[0]
    broker.kill()
    try:
        threading.Event().wait(60)  # the outage itself
        run.check()
    finally:
        broker.start()
    world.wait(run, "all of it", lambda: {*world.values("out")} == {*values}, timeout=240)
    run.stop()
    assert world.values("dead") == []
    if delivery == "transaction":
        assert len(world.values("out")) == len(values)
