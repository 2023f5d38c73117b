"""The index of letters says what a scan would say, whatever happens in between."""

from __future__ import annotations

from threading import Event, Lock, Semaphore, Thread
from types import SimpleNamespace

import pytest
from letters import buried, shop
from operating import Held

from redrive import App
from redrive.console import letters_index
from redrive.console.jobs import Jobs
from redrive.console.letters_index import LettersIndex
from redrive.console.parts import standing_of
from redrive.dead import DeadLetters, Filter, Operation, standing
from redrive.dead.desk import Means
from redrive.dead.operator import Operator, ReplayOptions
from redrive.errors import ConfigurationError, NotReadyError
from redrive.record import TopicPartition
from redrive.threads import begin

VALUES = [f"{('bad', 'missing', 'away')[number % 3]} {number}" for number in range(30)]


class World:
    """Letters in memory, and whoever does something about them."""

    def __init__(self, values=VALUES):
        self.app = shop()
        self.sim = buried(self.app, *values, partitions=3)
        broker = self.sim.broker
        if not broker.partitions(self.app.state_topic):
            broker.create(self.app.state_topic, 1, {"cleanup.policy": "compact"})
        self.letters = DeadLetters(broker, app=self.app)
        self.index = LettersIndex(self.letters)
        means = Means(
            take_over=lambda: broker.take_over(self.letters.topic),
            topics=broker,
            clock=self.sim.clock,
            wait=lambda _seconds: None,
            progress=broker.progress(self.app.name),
        )
        self.operator = Operator(self.letters, means, "alice")

    def counted(self):
        self.index.refresh()
        found = self.index.counted(self.sim.clock.now())
        return {group.id: (group.count, +group.states) for group in found.groups}

    def scanned(self):
        groups, _ = self.letters.groups()
        return {group.id: (group.count, group.states) for group in groups}


def test_the_index_has_what_a_scan_has():
    world = World()
    assert world.counted() == world.scanned() != {}
    found = world.index.counted(world.sim.clock.now())
    assert found.complete
    assert found.total == 30
    assert sum(sum(hours) for hours in found.hours.values()) == 30


def test_what_is_done_about_letters_is_counted_once_and_when_it_is_done():
    world = World()
    world.counted()
    world.operator.discard(Filter(errors=("KeyError",)), "test data")
    assert world.counted() == world.scanned()
    world.operator.replay(Filter(reasons=("rejected",)))
    world.operator.replay(Filter(), ReplayOptions(again=True))
    assert world.counted() == world.scanned()
    assert world.counted() == world.scanned()  # what was read is not counted again


def test_letters_that_die_again_are_new_ones():
    world = World()
    world.counted()
    world.operator.replay(Filter())
    world.sim.run_until_empty()
    assert world.counted() == world.scanned()
    states = world.index.counted(0).groups[0].states
    assert states["failed-again"] == states["replayed"] == 10


def test_operations_are_known_newest_first():
    world = World()
    first = world.operator.discard(Filter(errors=("KeyError",)), "one")
    world.sim.advance("5s")
    second = world.operator.discard(Filter(errors=("OSError",)), "two")
    world.counted()
    assert [each.id for each in world.index.counted(0).operations] == [second.id, first.id]


def test_what_retention_deletes_is_counted_no_longer(monkeypatch):
    world = World()
    world.counted()
    broker, bounds = world.sim.broker, world.sim.broker.bounds
    place = TopicPartition("shop.dead", 0)

    def fewer(asked):  # as a broker answers once retention has deleted four records
        first, end = bounds(asked)
        return (first + 4, end) if asked == place else (first, end)

    monkeypatch.setattr(broker, "bounds", fewer)
    world.counted()
    monkeypatch.setattr(letters_index, "CONSOLE_RECOUNT_EVERY", 0)
    assert world.counted() == world.scanned()


def test_a_dead_topic_that_was_created_again_is_counted_from_its_beginning():
    world = World()
    world.counted()
    world.sim.broker.delete(world.app.dead_topic)
    world.sim.broker.create(world.app.dead_topic, 1, {})
    assert world.counted() == {}


def test_without_a_dead_topic_there_is_nothing_to_count():
    world = World([])
    world.sim.broker.delete(world.app.dead_topic)
    assert world.counted() == {}


@pytest.mark.parametrize("step", [1, 7])
def test_letters_are_counted_in_steps_that_can_be_stopped(monkeypatch, step):
    monkeypatch.setattr(letters_index, "CONSOLE_INDEX_STEP", step)
    world = World()
    asked = []
    world.index.refresh(lambda: asked.append(1) or len(asked) > 3)
    found = world.index.counted(0)
    assert 0 < found.counted < found.total
    assert not found.complete
    assert world.counted() == world.scanned()


def test_what_the_shards_of_a_job_have_done_is_on_the_page():
    world = World()
    world.counted()
    known = world.index.known
    whole = Operation(id="replay-1", kind="replay", by="alice", at=5, run="r", ends={"0": 10})
    shard = whole.change(counts={"sent": 4}, cursor={"0": 4})
    known.operations[whole.id], known.shards[whole.id, 0] = whole, shard
    [shown] = world.index.counted(0).operations
    assert (shown.done, shown.left) == (4, 6)
    assert world.index.operation("replay-1") == shown
    assert world.index.operation("replay-2") is None


def test_the_page_of_a_job_says_what_its_shards_have_done():
    whole = Operation(id="replay-1", kind="replay", by="alice", at=5, run="r", ends={"0": 10})
    shard = whole.change(counts={"sent": 4}, cursor={"0": 4})
    world = World()
    world.counted()
    known = world.index.known
    known.operations[whole.id], known.shards[whole.id, 0] = whole, shard
    board = SimpleNamespace(jobs=Jobs(), index=world.index)
    assert standing_of(board, "replay-1").operation.done == 4
    with pytest.raises(ConfigurationError, match="no operation"):
        standing_of(board, "replay-2")


def test_what_is_done_while_letters_are_read_is_counted(monkeypatch):
    world = World()
    real, done = letters_index.Scan.partition, []

    def partition(scan, *given):
        found = [*real(scan, *given)]
        if not done:
            done.append(1)
            world.operator.discard(Filter(), "test data")
            world.index.catch_up()  # somebody looks at a page
        return iter(found)

    monkeypatch.setattr(letters_index.Scan, "partition", partition)
    assert world.counted() == world.scanned()
    assert world.counted() == world.scanned()


class Slow:
    """A broker that does not answer questions about the state topic until it is told to."""

    def __init__(self, world, monkeypatch):
        self.asked, self.answers = Event(), Event()
        broker = world.sim.broker
        bounds, topic = broker.bounds, world.app.state_topic
        self.times = 0

        def slow(place):
            if place.topic == topic:
                self.times += 1
                self.asked.set()
                assert self.answers.wait(60)
            return bounds(place)

        monkeypatch.setattr(broker, "bounds", slow)


def test_no_page_waits_for_a_broker_that_is_asked_what_was_done(monkeypatch):
    monkeypatch.setattr(letters_index, "CONSOLE_CATCH_UP_SECONDS", 0.01)
    world = World()
    world.counted()
    slow = Slow(world, monkeypatch)
    refreshing = Thread(target=world.index.refresh)
    refreshing.start()
    try:
        assert slow.asked.wait(60)
        assert world.index.counted(0).total == 30
        assert world.index.origins() == {"orders"}
        assert world.index.operation("replay-1") is None
        world.index.catch_up()
        assert slow.times == 1
    finally:
        slow.answers.set()
        refreshing.join(60)


def test_before_it_is_known_what_was_done_nothing_is_said_of_it(monkeypatch):
    monkeypatch.setattr(letters_index, "CONSOLE_CATCH_UP_SECONDS", 0.01)
    world = World()
    slow = Slow(world, monkeypatch)
    refreshing = Thread(target=world.index.refresh)
    refreshing.start()
    try:
        assert slow.asked.wait(60)
        with pytest.raises(NotReadyError, match="still being read"):
            world.index.catch_up()
    finally:
        slow.answers.set()
        refreshing.join(60)
    world.index.catch_up()


class Waited:
    """A lock that says how often somebody wanted it who does not wait for ever."""

    wanted = Semaphore(0)

    def __init__(self):
        self._lock = Lock()

    def acquire(self, *, timeout):
        self.wanted.release()
        return self._lock.acquire(timeout=timeout)

    def release(self):
        self._lock.release()

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def test_many_who_catch_up_at_once_read_once(monkeypatch):
    monkeypatch.setattr(letters_index, "CONSOLE_CATCH_UP_SECONDS", 60)
    monkeypatch.setattr(letters_index, "Lock", Waited)
    world = World()
    world.counted()
    slow = Slow(world, monkeypatch)
    threads = [Thread(target=world.index.catch_up) for _ in range(11)]
    threads[0].start()
    assert slow.asked.wait(60)
    for each in threads[1:]:
        each.start()
    for _ in threads:
        assert Waited.wanted.acquire(timeout=60)
    slow.answers.set()
    for each in threads:
        each.join(60)
    assert slow.times == 2  # the first, and one that began when all the others had asked


def test_hours_that_are_shown_no_longer_are_forgotten():
    world = World()
    world.counted()
    now = world.sim.clock.now()
    world.index.trim(now)
    assert sum(map(sum, world.index.counted(now).hours.values())) == 30
    world.index.trim(now + 49 * letters_index.HOUR)
    assert sum(map(sum, world.index.counted(now).hours.values())) == 0


def test_no_page_waits_for_a_decoder_that_hangs():
    world, decoding, may_end = World(VALUES[:3]), Event(), Event()
    app = App(world.app.name, masked=["card"])

    @app.handler("orders", decode=lambda _: decoding.set() or may_end.wait(60))
    def handle(record, ctx):
        pass

    index = LettersIndex(DeadLetters(world.sim.broker, app=app))
    counting = begin(index.refresh, name="test")
    try:
        assert decoding.wait(60)
        asked = begin(lambda: index.counted(world.sim.clock.now()), name="test")
        assert asked.result(30).counted == 0
    finally:
        may_end.set()
    counting.result(60)
    assert index.counted(world.sim.clock.now()).counted == 3


def test_the_first_letter_without_a_decision_is_known_by_partition():
    world = World()
    world.counted()
    offsets = {}
    for found in world.letters.scan():
        record = found.letter.record
        offsets.setdefault(record.partition, []).append(record.offset)
    assert world.index.first_unsettled() == {place: each[0] for place, each in offsets.items()}
    place, (first, second, *_) = next(iter(offsets.items()))
    dead = world.letters.topic
    for offset in (second, first):
        world.operator.discard(Filter(places=(f"{dead}[{place}]@{offset}",)), "test data")
    world.counted()
    assert world.index.first_unsettled()[place] == offsets[place][2]
    world.sim.broker.truncate(TopicPartition(dead, place), offsets[place][3])
    world.counted()
    assert world.index.first_unsettled()[place] == offsets[place][3]
    world.operator.discard(Filter(), "all of it")
    world.counted()
    assert world.index.first_unsettled() == {}


def test_a_group_waits_since_its_first_letter_about_which_nobody_has_decided():
    world = World()
    died = {}
    scan = world.letters.scan()
    for letter, _, _ in scan:
        died.setdefault(letter.group, []).append((letter.died // 1000 * 1000, letter.place))

    def waiting():
        world.index.refresh()
        return world.index.counted(world.sim.clock.now()).waiting

    assert waiting() == {name: min(found)[0] for name, found in died.items()}
    name, found = next(iter(died.items()))
    *early, last = sorted(found)
    world.operator.discard(Filter(places=tuple(place for _, place in early)), "test data")
    assert waiting()[name] == last[0]
    world.operator.discard(Filter(places=(last[1],)), "test data")
    assert name not in waiting()


def test_no_more_letters_are_in_memory_at_once_than_fit(monkeypatch):
    world = World()
    log = Held(world.letters.log, world.letters.topic)
    world.letters.log = log
    monkeypatch.setattr(standing, "DEAD_BYTES", 1_000)
    assert world.counted() == world.scanned()
    assert log.now == 0
    most = log.most
    lightest = min(each.letter.record.weight for each in world.letters.some()[0])
    # Those that are counted, and those that are read next.
    assert most <= 2 * (1_000 // lightest + 1) + 1 < 10
