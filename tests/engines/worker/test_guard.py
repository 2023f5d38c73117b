"""The guard of a worker whose partitions come and go."""

from __future__ import annotations

import pytest
from http_service import CALLING, HttpService

RECORDS = 300


@pytest.fixture
def service():
    made = HttpService()
    yield made
    made.go_away()


def state(run):
    (guard,) = run.worker.guards()
    return guard.state


def test_a_rebalance_does_not_end_it(world, start, service):
    options = 'delivery="at-least-once"'
    target = world.app(CALLING.format(options=options, port=service.port, timeout=5), 4)
    world.create(world.topic("out"))
    service.go_away()
    run = start(target, instance="one")
    values = [b"%d" % number for number in range(RECORDS)]
    world.send("in", *values)
    world.wait(run, "it opens", lambda: state(run) == "open")
    other = start(target, instance="two")
    world.wait(other, "it has partitions", lambda: other.worker.assigned > 0)
    world.wait(run, "so has the other", lambda: run.worker.assigned > 0)
    other.stop()
    world.wait(run, "it has all of them again", lambda: run.worker.assigned >= 4)
    assert state(run) == "open"
    service.come_back()
    world.wait(run, "all of it", lambda: {*world.values("out")} == {*values})
    run.stop()
    assert world.values("dead") == []
    assert world.count("retry.1s") == 0
