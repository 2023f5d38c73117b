"""A replay in shards, by several processes at once: none left out, none twice, whoever dies."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from redrive import App, ConfigurationError, RetryPolicy
from redrive.dead import DeadLetters, Filter
from redrive.dead.desk import Desk, Means, TakenOverError
from redrive.dead.operator import Operator, ReplayOptions
from redrive.dead.shards import ShardDesk
from redrive.kafka.transactional_producer import FencedError
from redrive.testing import Simulation

LETTERS = 30
PARTITIONS = 3
DELAY = "shop.retry.5s"


class Killed(BaseException):
    """As if the process had been killed at that point."""


class World:
    """Letters in several partitions, operators, and a hook around each transaction."""

    def __init__(self):
        self.app = App("shop", retry=RetryPolicy("5s"))

        @self.app.handler("orders")
        def handle(record, ctx):
            raise KeyError(record.value.decode())

        self.sim = Simulation(self.app, partitions=PARTITIONS)
        self.broker = self.sim.broker
        if not self.broker.partitions(self.app.state_topic):
            self.broker.create(self.app.state_topic, 1, {"cleanup.policy": "compact"})
        for number in range(LETTERS):
            self.sim.send("orders", f"v{number}", key=f"k{number % 7}")
        self.sim.run_until_empty()
        self.before = self.after = lambda _name: None
        self.on_settle = lambda: None
        self._commit_as = self.broker.commit_as
        self.broker.commit_as = self._commit

    def _commit(self, name, epoch, writes):
        self.before(name)
        self._commit_as(name, epoch, writes)
        self.after(name)

    @property
    def letters(self):
        return DeadLetters(self.broker, app=self.app)

    @property
    def means(self):
        return Means(
            take_over=lambda: self.broker.take_over("desk"),
            topics=self.broker,
            clock=self.sim.clock,
            wait=lambda _seconds: None,
            progress=self.broker.progress(self.app.name),
            take_over_shard=lambda number: self.broker.take_over(f"shard {number}"),
            settle=self._settle,
        )

    def _settle(self):
        self.on_settle()

    def operator(self, by="alice"):
        return Operator(self.letters, self.means, by)

    def run_shards(self, operation, order=range(PARTITIONS)):
        for partition in order:
            self.operator().run_shard(operation.id, operation.run, partition)

    def records(self):
        """The copies, partition by partition."""
        found = self.broker.records(DELAY)
        return [each for each in found if "redrive-replay-of" in dict(each.headers)]

    def copies(self):
        """How often each letter was replayed."""
        return Counter(dict(each.headers)["redrive-replay-of"].decode() for each in self.records())

    def check_once_and_in_order(self):
        copies = self.copies()
        assert (len(copies), set(copies.values())) == (LETTERS, {1})
        last = {}
        for record in self.records():
            number = int(record.value.decode()[1:])
            assert last.get(record.key, -1) < number
            last[record.key] = number
        states = {each.state for each in self.letters.some(limit=1000)[0]}
        assert states == {"replayed"}
        [operation] = self.letters.known().operations.values()
        assert (operation.status, operation.counts) == ("done", {"sent": LETTERS})
        assert (operation.run, operation.closed, operation.left) == ("", False, 0)


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr("redrive.dead.running.DEAD_BYTES", 1)  # each letter its own transaction
    return World()


def test_a_replay_in_shards_replays_each_letter_once(world):
    done = world.operator().replay(Filter(), run_shards=world.run_shards)
    assert (done.status, done.done, done.left) == ("done", LETTERS, 0)
    world.check_once_and_in_order()


def test_what_shards_have_done_is_seen_while_they_run(world):
    seen = []

    def run_shards(operation):
        world.run_shards(operation, [1])
        seen.extend(world.operator().operations())
        world.run_shards(operation)

    world.operator().replay(Filter(), run_shards=run_shards)
    assert (seen[0].status, 0 < seen[0].done < LETTERS) == ("running", True)
    world.check_once_and_in_order()


@pytest.mark.parametrize("in_shards", [True, False])
def test_whoever_resumes_goes_on_behind_each_shard(world, in_shards):
    def killed(name):
        if name == "shard 1" and len(world.copies()) > LETTERS // 2:
            raise Killed

    world.after = killed
    with pytest.raises(Killed):
        world.operator().replay(Filter(), run_shards=world.run_shards)
    world.after = lambda _name: None
    [begun] = world.letters.known().operations.values()
    how = {"run_shards": world.run_shards} if in_shards else {}
    world.operator("bob").resume(begun.id, **how)
    world.check_once_and_in_order()


def left_over(world):
    """The messages about shards that compaction leaves in the state topic."""
    last = {each.key: each.value for each in world.broker.records(world.app.state_topic)}
    return [key.decode() for key, value in last.items() if value and key.startswith(b"shard/")]


def test_what_was_known_of_shards_whose_job_is_over_is_removed_by_the_next_one(world):
    done = world.operator().replay(Filter(), run_shards=world.run_shards)
    assert left_over(world) == [f"shard/{done.id}/{number}" for number in range(PARTITIONS)]
    world.operator("bob").discard(Filter(keys=("none",)), "test data")
    assert left_over(world) == []
    assert world.letters.known().shards == {}
    assert world.letters.known().operations[done.id] == done


def test_of_a_job_that_was_paused_only_the_shards_of_its_last_run_are_known(world):
    half = world.operator().replay(Filter(), run_shards=lambda begun: world.run_shards(begun, [0]))
    assert (half.status, left_over(world)) == ("paused", [f"shard/{half.id}/0"])
    seen = []

    def run_shards(operation):
        seen.append(left_over(world))
        world.run_shards(operation)

    world.operator("bob").resume(half.id, run_shards=run_shards)
    assert seen == [[]]
    world.check_once_and_in_order()


def test_a_pause_ends_the_shards_wherever_they_are(world):
    paused = []

    def pause(name):
        if name == "shard 0" and not paused and len(world.copies()) == 3:
            paused.append(None)
            [operation] = world.letters.known().operations.values()
            world.operator("bob").pause(operation.id)

    world.before = pause
    left = world.operator().replay(Filter(), run_shards=world.run_shards)
    assert (left.status, left.said, left.done) == ("paused", "paused by bob", 3)
    assert len(world.copies()) == 3
    world.operator().resume(left.id)
    world.check_once_and_in_order()


def test_a_shard_that_begins_when_its_run_is_over_does_nothing(world):
    runs = []

    def nothing(operation):
        runs.append(operation)

    left = world.operator().replay(Filter(), run_shards=nothing)
    assert (left.status, left.said) == ("paused", "not all shards came to their end: resume it")
    world.run_shards(runs[0])
    assert not world.copies()

    def late(operation):
        world.run_shards(runs[0])
        assert not world.copies()
        world.run_shards(operation)

    world.operator().resume(left.id, run_shards=late)
    world.check_once_and_in_order()


def test_of_two_processes_with_one_shard_the_later_one_goes_on(world):
    failed = []

    def twice(name):
        if name == "shard 2" and not failed and len(world.copies()) > 2:
            failed.append(None)
            world.run_shards(runs[0], [2])

    runs = []

    def run_shards(operation):
        runs.append(operation)
        with pytest.raises(TakenOverError):
            world.run_shards(operation, [2])
        world.run_shards(operation, [0, 1])

    world.before = twice
    world.operator().replay(Filter(), run_shards=run_shards)
    assert failed
    world.check_once_and_in_order()


def test_one_that_begins_before_it_can_read_that_all_is_over_is_fenced_off(world):
    """An open transaction of a neighbour keeps what was written after it from being read."""
    begun, zombies = [], []

    def run_shards(operation):
        begun.append((operation, world.letters.known()))

    world.operator().replay(Filter(), run_shards=run_shards)

    def begin_with_the_past():
        world.on_settle = lambda: None
        operation, known = begun[0]
        letters = world.letters
        letters.known = lambda: known
        zombies.append(ShardDesk(letters, world.means, operation.id, operation.run, 0))

    # Somebody has begun with it again, and was killed: whoever comes next has shards to end.
    operation, _ = begun[0]
    desk = Desk(world.letters, world.means)
    desk.commit([], operation)
    settled = []

    def settle():
        settled.append(None)
        if len(settled) == 2:  # the first one is that of the desk itself
            begin_with_the_past()

    world.on_settle = settle
    world.operator("bob").pause(operation.id)
    [zombie] = zombies
    with pytest.raises(FencedError):
        zombie.commit([], zombie.shard)


def test_a_signal_ends_shards_that_are_under_way(world, monkeypatch):
    monkeypatch.setattr("redrive.dead.shards.DEAD_LOOK_EVERY", 0.01)
    from threading import Event

    some, ended = Event(), Event()

    def run_shards(operation):
        world.run_shards(operation, [0])
        some.set()
        assert ended.wait(60)
        world.run_shards(operation)

    def on_settle():
        if some.is_set():
            ended.set()

    world.on_settle = on_settle
    left = world.operator().replay(Filter(), run_shards=run_shards, stopping=some.is_set)
    assert (left.status, left.said) == ("paused", "by a signal")
    assert 0 < len(world.copies()) == left.done < LETTERS
    world.operator().resume(left.id)
    world.check_once_and_in_order()


def test_what_needs_one_process_is_refused(world):
    options = ReplayOptions(rate=1.0, ramp=(1,), stop_above=0.0)  # 0 % is a share
    with pytest.raises(ConfigurationError, match="--rate needs one process") as raised:
        world.operator().replay(Filter(), options, run_shards=world.run_shards)
    assert len(raised.value.problems) == 3
    assert not world.letters.known().operations


class Chaos:
    """Kills whoever commits, before or after it; shards are retried, and come to life again."""

    def __init__(self, world, seed):
        self._world = world
        self._dice = random.Random(seed)
        self._runs = []
        world.before = world.after = self._event

    def _event(self, _name):
        if self._dice.random() < 0.05:
            raise Killed

    def _shard(self, operation, partition):
        for _ in range(3):  # as Spark does it
            try:
                self._world.operator().run_shard(operation.id, operation.run, partition)
            except (Killed, TakenOverError):
                continue
            return

    def run_shards(self, operation):
        dice = self._dice
        self._runs.append(operation)
        for partition in dice.sample(range(PARTITIONS), PARTITIONS):
            if dice.random() < 0.2:
                self._shard(dice.choice(self._runs), dice.randrange(PARTITIONS))
            self._shard(operation, partition)

    def step(self):
        """Go on, in shards or without; True: it is done."""
        known = self._world.letters.known().operations
        if any(each.status == "done" for each in known.values()):
            return True
        how = {"run_shards": self.run_shards} if self._dice.random() < 0.7 else {}
        operator = self._world.operator()
        try:
            operator.resume(next(iter(known)), **how) if known else operator.replay(Filter(), **how)
        except Killed:
            pass
        return False


@pytest.mark.parametrize("seed", range(30))
def test_kills_retries_and_takeovers_anywhere(world, seed):
    chaos = Chaos(world, seed)
    assert any(chaos.step() for _ in range(200))
    world.check_once_and_in_order()


def test_means_without_shards_say_so(world):
    means = replace(world.means, take_over_shard=None)
    with pytest.raises(AssertionError, match="no way to take it over"):
        ShardDesk(world.letters, means, "x", "y", 0)
