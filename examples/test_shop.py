"""How the shop of `redrive demo` is tested: hours of retries, in milliseconds, without Kafka."""

import json

from redrive.demo.shop import app
from redrive.testing import Simulation


def test_an_update_waits_for_its_create():
    with Simulation(app) as sim:
        sim.send("item.update", {"id": "lamp", "status": "SOLD"}, key="lamp")
        sim.advance("7m")  # tried at 0s and at 5m
        sim.send("item.create", {"id": "lamp"}, key="lamp")
        sim.run_until_empty()

        tried = [each for each in sim.attempts if each.topic == "item.update"]
        assert [each.after for each in tried] == ["0s", "5m", "10m"]
        assert not sim.dead
        [told] = sim.sent("item.updated")
        assert json.loads(told.value) == {"id": "lamp", "status": "SOLD"}


def test_an_update_whose_create_never_comes_is_buried():
    with Simulation(app) as sim:
        sim.send("item.update", {"id": "ghost", "status": "SOLD"}, key="ghost")
        sim.run_until_empty()

        assert sim.now == "2h40m"
        assert [each.reason for each in sim.dead] == ["exhausted"]
        assert not sim.sent("item.updated")


def test_updates_of_items_that_exist_do_not_wait_for_others():
    items = {"chair": "NEW"}
    with Simulation(app, resources={"items": items}) as sim:
        sim.send("item.update", {"id": "ghost", "status": "SOLD"}, key="ghost")
        sim.send("item.update", {"id": "chair", "status": "SOLD"}, key="chair")
        sim.run()

        assert items == {"chair": "SOLD"}
        assert [kept.record.key for kept in sim.parked] == [b"ghost"]
