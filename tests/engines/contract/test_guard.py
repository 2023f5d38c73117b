"""A real HTTP service that goes away: refusing, hanging, unavailable; and comes back cold."""

from __future__ import annotations

import pytest
from http_service import CALLING, HttpService

from redrive.record import Write

RECORDS = 300
POISON = {b"poison 1", b"poison 2", b"poison 3"}


@pytest.fixture
def service():
    made = HttpService()
    yield made
    made.go_away()


def probed(run, least):
    (guard,) = run.handle.guards()
    return guard.probes.get("failed", 0) >= least


def state(run):
    (guard,) = run.handle.guards()
    return guard.state


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_an_outage_costs_nothing_and_ends_without_a_second_one(world, start, service, delivery):
    options = f"delivery={delivery!r}"
    target = world.app(CALLING.format(options=options, port=service.port, timeout=5))
    world.create(world.topic("out"))
    run = start(target)
    values = [b"%d" % number for number in range(RECORDS)]
    world.send("in", *values[:100])
    world.wait(run, "those before the outage", lambda: len(world.values("out")) == 100)
    service.go_away()
    world.send("in", *values[100:200])
    world.publisher.publish([Write(world.topic("in"), b"poison", each) for each in sorted(POISON)])
    world.wait(run, "it opens", lambda: state(run) == "open")
    world.send("in", *values[200:])
    world.wait(run, "a probe is refused", lambda: probed(run, 1))
    service.come_back("hanging")
    world.wait(run, "a probe hangs", lambda: probed(run, 2))
    service.come_back("unavailable")
    world.wait(run, "a probe is told to come later", lambda: probed(run, 3))
    assert len(world.values("out")) == 100
    assert world.values("retry.1s") == []
    service.come_back()
    world.wait(run, "all of it", lambda: {*world.values("out")} == {*values})
    world.wait(run, "the poisoned ones", lambda: {*world.values("dead")} == POISON)
    run.stop()
    assert service.fallen == 0
    assert {*world.values("out")} == {*values}
    assert {*world.values("retry.1s")} == {*world.values("dead")} == POISON
    assert {note["again"].encode() for note in world.notes()} == POISON


def test_whoever_stops_while_it_is_open_commits_nothing_of_what_waits(world, start, service):
    service.go_away()
    options = 'delivery="at-least-once"'
    target = world.app(CALLING.format(options=options, port=service.port, timeout=5))
    world.create(world.topic("out"))
    run = start(target)
    values = [b"%d" % number for number in range(RECORDS)]
    world.send("in", *values)
    world.wait(run, "it opens", lambda: state(run) == "open")
    run.stop()
    assert world.lag("in") == RECORDS
    again = start(target)
    world.wait(again, "it opens again", lambda: state(again) == "open")
    service.come_back()
    world.wait(again, "all of it", lambda: world.count("out") == RECORDS)
    again.stop()
    assert world.values("dead") == []
    assert world.count("retry.1s") == 0
