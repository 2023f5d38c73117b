"""A service that is away for a minute, while a thousand records a second come in."""

from __future__ import annotations

import threading
from time import monotonic

import pytest
from http_service import CALLING, HttpService

from redrive.record import Write

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SECONDS = 75
PER_SECOND = 1000
POISONED_RECORD = b"poison"
POISONED_KEY = [b"poison 1", b"poison 2", b"poison 3"]


@pytest.fixture
def service():
    made = HttpService()
    yield made
    made.go_away()


def send_steadily(world, values):
    """A thousand records each second; returns the thread that does."""

    def send():
        begin = monotonic()
        for second in range(SECONDS):
            part = values[second * PER_SECOND : (second + 1) * PER_SECOND]
            world.publisher.publish([Write(world.topic("in"), each, each) for each in part])
            threading.Event().wait(max(0.0, begin + second + 1 - monotonic()))

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("engine", "concurrency"), [("worker", 64), ("spark", 4)], indirect=["engine"]
)
def test_a_minute_without_the_service_costs_nobody_an_attempt(world, start, service, concurrency):
    source = CALLING.format(options="", port=service.port, timeout=10)
    target = world.app(source.replace("concurrency=16", f"{concurrency=}"), partitions=4)
    world.create(world.topic("out"), 4)
    values = [b"%d" % number for number in range(SECONDS * PER_SECOND)]
    run = start(target)
    sending = send_steadily(world, values)
    world.wait(run, "some of it", lambda: world.count("out") > 2 * PER_SECOND)
    service.go_away()
    world.wait(run, "it opens", lambda: run.handle.guards()[0].state == "open")
    world.send("in", POISONED_RECORD)
    world.send("in", *POISONED_KEY, key=b"poison")
    for mode in ("hanging", "unavailable"):
        threading.Event().wait(20)  # the outage itself
        service.come_back(mode)
    threading.Event().wait(20)
    calls = service.calls
    service.come_back()
    world.wait(run, "all of it", lambda: {*world.values("out")} == {*values}, timeout=600)
    poisoned = {POISONED_RECORD, *POISONED_KEY}
    world.wait(run, "the poisoned ones", lambda: {*world.values("dead")} == poisoned, timeout=120)
    sending.join()
    run.stop()
    assert calls < 10 * PER_SECOND
    assert service.fallen == 0
    assert {*world.values("retry.1s")} == poisoned
    assert {note["again"].encode() for note in world.notes()} == poisoned
