"""Watching copies: each record is read once more only where copies are."""

from __future__ import annotations

import pytest
from operating import Counting, World

from redrive import App, Bury, RetryPolicy
from redrive.dead import DeadLetters, Filter
from redrive.dead.desk import UnderWayError
from redrive.dead.watching import Fate, Watch
from redrive.errors import ConfigurationError
from redrive.testing import Simulation


def test_a_backlog_is_read_once_and_not_with_each_look():
    world = World(values=["a", "b", "c"], redeliver="origin")
    for number in range(100):
        world.sim.send("orders", f"waits {number}")
    operation = world.operator().replay(Filter())
    letters = world.letters
    letters.log = Counting(world.broker)
    watch = Watch(letters, operation, world.broker.progress("shop"))
    assert watch.look() == Fate(dead=0, parked=0, waiting=3)
    before = letters.log.read.total()
    assert before >= 103
    assert watch.look() == Fate(dead=0, parked=0, waiting=3)
    assert letters.log.read.total() - before == 3
    world.sim.send("orders", "one more")
    world.sim.run()
    assert watch.look() == Fate(dead=0, parked=3, waiting=0)
    world.run()
    assert watch.look() == Fate(dead=3, parked=0, waiting=0)


def test_copies_for_an_app_that_was_renamed_die_in_its_new_topic(world):
    app = App("store", was="shop", retry=RetryPolicy("5s"))

    @app.handler("orders")
    def handle(record, ctx):
        raise Bury("no")

    with Simulation(app, broker=world.broker, clock=world.sim.clock) as sim:
        operator = world.operator(app=app, topic="shop.dead")
        operation = operator.replay(Filter())
        letters = DeadLetters(world.broker, app=app, topic="shop.dead")
        watch = Watch(letters, operation, world.broker.progress("store"))
        assert watch.look().dead == 0
        sim.run_until_empty()
        assert watch.look() == Fate(dead=20, parked=0, waiting=0)
        assert watch.look().dead == 20


def test_copies_are_followed_until_all_are_handled_or_dead(world):
    operator = world.operator()
    name = operator.replay(Filter()).id
    operation, watch = operator.watch(name)
    shown = []
    fate = watch.follow(shown.append, lambda: False, world.run)
    assert (operation.id, fate.settled, fate.dead) == (name, True, shown[-1].dead)
    assert [each.settled for each in shown] == [False, True]


def test_whoever_wants_to_stop_hears_how_it_stands(world):
    operator = world.operator()
    _, watch = operator.watch(operator.replay(Filter()).id)
    assert watch.follow(lambda _fate: None, lambda: True, world.run).waiting == 20


def test_only_replays_for_an_app_have_copies_to_watch(world):
    operator = world.operator()
    with pytest.raises(UnderWayError, match="there is no operation replay-1"):
        operator.watch("replay-1")
    name = operator.discard(Filter(), "test data").id
    with pytest.raises(ConfigurationError, match="only of a replay for an app"):
        operator.watch(name)
