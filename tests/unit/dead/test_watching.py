"""Watching copies: each record is read once more only where copies are."""

from __future__ import annotations

import pytest
from operating import Counting, World

from redrive import App, Bury, RetryPolicy
from redrive.dead import DeadLetters, Filter
from redrive.dead.desk import UnderWayError
from redrive.dead.watching import Fate, Watch
from redrive.errors import ConfigurationError
from redrive.record import TopicPartition
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


class Meanwhile:
    """Something that happens just before an attribute of an object is asked for."""

    def __init__(self, real, name, act):
        self._real = real
        self._name = name
        self._acts = [act]

    def __getattr__(self, name):
        if name == self._name and self._acts:
            self._acts.pop()()
        return getattr(self._real, name)


@pytest.mark.parametrize("moment", ["committed", "bounds", "batches"])
def test_a_copy_that_dies_while_it_is_looked_for_is_counted_once(world, moment):
    operation = world.operator().replay(Filter())
    letters, progress = world.letters, world.broker.progress("shop")
    if moment == "committed":
        progress = Meanwhile(progress, moment, world.run)
    else:
        letters.log = Meanwhile(world.broker, moment, world.run)
    fate = Watch(letters, operation, progress).look()
    assert fate.dead + fate.waiting + fate.parked == 20


def test_a_copy_that_has_died_and_whose_progress_is_not_committed_yet_is_counted_once(world):
    operation = world.operator().replay(Filter())
    progress = world.broker.progress("shop")
    before = progress.committed([TopicPartition("shop.retry.5s", 0)])
    world.run()
    after = dict(progress.committed([*before]))

    class Late:
        def committed(self, places):
            found = progress.committed(places)
            return {**found, **{place: at for place, at in before.items() if place in places}}

    watch = Watch(world.letters, operation, Late())
    for _ in range(2):
        assert watch.look() == Fate(dead=20, parked=0, waiting=0)
    before.update(after)
    assert watch.look() == Fate(dead=20, parked=0, waiting=0)


def test_what_retention_deletes_while_it_is_looked_through_ends_nothing(world):
    operation = world.operator().replay(Filter())
    letters = world.letters
    place = TopicPartition("shop.retry.5s", 0)
    _, end = world.broker.bounds(place)
    letters.log = Meanwhile(
        world.broker,
        "batches",
        lambda: world.broker.truncate(place, end - 6),  # and a marker
    )
    watch = Watch(letters, operation, world.broker.progress("shop"))
    assert watch.look() == Fate(dead=0, parked=0, waiting=5)


def test_transactions_that_show_in_some_partitions_only_are_waited_for():
    world = World(app=None, values=["a", "b"], delivery="transaction")
    operation = world.operator().replay(Filter())
    world.run()

    class Unsettled:
        """Shows what is in the dead topic only once somebody has waited for it."""

        hidden = True

        def __getattr__(self, name):
            return getattr(world.broker, name)

        def bounds(self, place):
            first, end = world.broker.bounds(place)
            is_hidden = self.hidden and place.topic == "shop.dead"
            return first, end - 2 if is_hidden else end

        def settle(self, place):
            self.hidden = self.hidden and place.topic != "shop.dead"

    letters = world.letters
    letters.log = Unsettled()
    watch = Watch(letters, operation, world.broker.progress("shop"))
    assert watch.look() == Fate(dead=2, parked=0, waiting=0)


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
