"""A replay leaves out what the app's inbox would drop, and says so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from redrive import App, RetryPolicy, ids
from redrive.dead import DeadLetters, Filter, running, standing
from redrive.dead.desk import Means
from redrive.dead.operator import Operator, ReplayOptions
from redrive.envelope import parse
from redrive.record import Record
from redrive.testing import Simulation


class World:
    """An app with an inbox, whose records have ids of their own, and six dead letters."""

    def __init__(self):
        self.broken, self.handled = True, []
        self.app = App("shop", delivery="idempotent", retry=RetryPolicy("5s"))

        @self.app.handler("orders", decode=json.loads, id=ids.field("id"))
        def handle(record, ctx):
            if self.broken:
                raise KeyError(record.data["id"])
            self.handled.append(record.data["id"])

        self.sim = Simulation(self.app, db=object())
        self.broker = self.sim.broker
        self.broker.create(self.app.state_topic, 1, {"cleanup.policy": "compact"})
        for number in range(6):
            self.send(number)
        self.sim.run_until_empty()
        self.broken = False

    def send(self, number, **more):
        self.sim.send("orders", {"id": number, **more}, key="k")

    def operator(self, *, asks=True):
        letters = DeadLetters(self.broker, app=self.app)
        means = Means(
            take_over=lambda: self.broker.take_over("shop.dead"),
            topics=self.broker,
            clock=self.sim.clock,
            wait=lambda _: None,
            progress=self.broker.progress("shop"),
            ids=self.sim.store if asks else None,
        )
        return Operator(letters, means, "alice")

    def run(self):
        del self.handled[:]
        self.sim.run_until_empty()
        return sorted(self.handled)


@pytest.fixture
def world():
    return World()


def test_a_buried_id_is_forgotten_so_that_its_letter_is_replayed(world):
    plan = world.operator().plan(Filter())
    assert (plan.letters, plan.left_out, plan.unknown) == (6, {}, "")
    assert world.operator().replay(Filter()).counts == {"sent": 6}
    assert world.run() == [*range(6)]


def test_letters_that_were_done_meanwhile_are_left_out(world):
    world.send(1)
    world.send(4)
    assert world.run() == [1, 4]
    plan = world.operator().plan(Filter())
    assert (plan.letters, plan.left_out) == (4, {"done-meanwhile": 2})
    done = world.operator().replay(Filter())
    assert done.counts == {"sent": 4, "done-meanwhile": 2}
    assert world.run() == [0, 2, 3, 5]


def test_letters_that_an_earlier_replay_has_done_are_left_out_even_again(world):
    world.operator().replay(Filter(ids=("2",)))
    assert world.run() == [2]
    plan = world.operator().plan(Filter(), ReplayOptions(again=True))
    assert (plan.letters, plan.left_out) == (5, {"done-meanwhile": 1})


def test_letters_whose_copies_wait_are_left_out(world):
    world.broken = True
    world.operator().replay(Filter(ids=("3",)))
    world.sim.advance("6s")  # it is due, fails, and waits for its second attempt
    assert len(world.sim.parked) == 1
    plan = world.operator().plan(Filter(), ReplayOptions(again=True))
    assert (plan.letters, plan.left_out) == (5, {"waiting": 1})


def test_an_id_that_was_handled_with_another_payload_is_not_done(world):
    world.send(1, price=7)
    assert world.run() == [1]
    plan = world.operator().plan(Filter())
    assert (plan.letters, plan.left_out) == (6, {})


def test_it_is_the_fixed_value_that_counts(world):
    world.send(1, price=7)
    assert world.run() == [1]
    edited = ReplayOptions(edited=b'{"id": 1, "price": 7}')
    plan = world.operator().plan(Filter(places=("shop.dead[0]@1",)), edited)
    assert (plan.letters, plan.left_out) == (0, {"done-meanwhile": 1})


def test_an_inbox_that_cannot_be_asked_is_said(world):
    world.send(1)
    world.run()
    plan = world.operator(asks=False).plan(Filter())
    assert (plan.letters, "inbox was not asked" in plan.unknown) == (6, True)
    world.operator(asks=False).replay(Filter())
    assert world.run() == [0, 2, 3, 4, 5]


def test_the_age_of_a_copy_counts_from_when_it_is_written(world, monkeypatch):
    """Not from when its letter was read: at one letter a minute that is long ago."""
    times = [0.0]
    monkeypatch.setattr(running, "monotonic", lambda: times[0])
    operator = world.operator()

    def wait(seconds):
        times[0] += seconds
        world.sim.clock.advance(int(seconds * 1000))

    slow = Operator(operator.letters, replace(operator.means, wait=wait), "alice")
    began = world.sim.clock.now()
    slow.replay(Filter(), ReplayOptions(rate=1 / 60))
    copies = world.broker.records("shop.retry.5s")[-6:]
    received = [parse(copy.headers).first_received for copy in copies]
    assert received == sorted({*received})
    assert received[-1] - began >= 4 * 60_000


def test_large_letters_are_asked_for_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(standing, "DEAD_BYTES", 10)
    records = [Record("t", 0, n, None, b"x" * 6) for n in range(5)]
    asked = standing.lots(records, lambda each: each)
    assert [len(some) for some in asked] == [2, 2, 1]
