"""What looks at an app's topics and group say, on a broker in memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redrive import App, RetryPolicy
from redrive.console import sampling
from redrive.console.concerns import concerns
from redrive.console.endpoints import Endpoints
from redrive.console.letters_index import Counted
from redrive.console.retention import Kept
from redrive.console.sampling import Sampler
from redrive.errors import RedriveError
from redrive.kafka.groups import Member
from redrive.ports import Position
from redrive.record import TopicPartition, Write
from redrive.testing import Simulation

ORDERS = TopicPartition("orders", 0)


class Log:
    """A broker in memory that also answers about many topics at once, as Kafka's admin does."""

    def __init__(self, broker):
        self.names, self.appended_since = broker.names, broker.appended_since
        self._broker = broker

    def topics(self, names):
        there = {name: self._broker.partitions(name) for name in names}
        return {name: (name, count) for name, count in there.items() if count}

    def all_bounds(self, places):
        return {place: self._broker.bounds(place) for place in places}

    def batches(self, place, start, end, *, size):
        for record in self._broker.read(place, start, end):
            yield [record]


class Looks:
    """A console that looks at an app every two seconds, by a clock of its own."""

    def __init__(self, monkeypatch):
        self.app = App("shop", retry=RetryPolicy("5s"))
        self.app.handler("orders")(lambda record, ctx: None)
        self.sim = Simulation(self.app)
        self.log = Log(self.sim.broker)
        self.members, self.active = None, False
        monkeypatch.setattr(sampling, "members_of", lambda _admin, _group: self.members)
        monkeypatch.setattr(sampling, "CONSOLE_TOPICS_EVERY", 0.0)
        self.admin = admin = SimpleNamespace(
            has_members=lambda _group: self.active, broker_settings=dict
        )
        self.settings = {}
        monkeypatch.setattr(
            sampling,
            "KafkaTopics",
            lambda _settings, admin: SimpleNamespace(visible_settings=lambda _: self.settings),
        )
        watched = SimpleNamespace(
            name="shop",
            app=self.app,
            sources=("orders",),
            log=self.log,
            progress=self.sim.broker.progress("shop"),
            admin=admin,
            settings=None,
        )
        self.unsettled = {}
        self.progress = watched.progress
        self.sampler = Sampler(watched, Endpoints([]), clock=self.sim.clock, unsettled=self.first)

    def first(self):
        return self.unsettled

    def send(self, count):
        for number in range(count):
            self.sim.send("orders", f"{number}")

    def look(self, seconds=2):
        self.sim.clock.advance(seconds * 1000)
        self.sampler.look()
        assert self.sampler.flow.trouble == ""
        return self.sampler.flow

    def said(self):
        """Warnings that nobody reads."""
        now, counted = self.sim.clock.now(), Counted([], {}, 0, 0, [], {})
        found = concerns("shop", self.sampler.flow, counted=counted, seen=(), kept=Kept(), now=now)
        return [each.said for each in found if "nobody" in each.said]


@pytest.fixture
def looks(monkeypatch):
    made = Looks(monkeypatch)
    with made.sim:
        yield made


def test_a_run_on_spark_is_never_said_to_be_away_between_its_batches(looks):
    # It has no members, and commits with each batch: a batch may take longer than a look.
    looks.send(50)
    for batch in range(1, 6):
        for _ in range(20):
            looks.look()
            assert looks.said() == []
        looks.progress.commit({ORDERS: Position(batch * 5)})


def test_an_app_that_nobody_runs_is_named_after_a_while(looks):
    looks.send(9)
    looks.look()
    looks.look(59)
    assert looks.said() == []
    looks.look(1)
    assert looks.said() == [
        "nobody seems to read orders: 9 records wait, and none was handled for 1m"
    ]


def test_members_that_are_not_told_are_not_known_and_at_work(looks):
    # As with the new group protocol; with the classic one, while it rebalances.
    looks.send(9)
    looks.active = True
    for _ in range(100):
        assert looks.look().members is None
    assert looks.said() == []


def test_a_group_that_cannot_be_asked_for_is_in_the_way_of_nothing_else(looks, monkeypatch):
    def refuse(_group):
        raise RedriveError("one of the brokers is away")

    monkeypatch.setattr(looks.admin, "has_members", refuse)
    looks.send(9)
    looks.look()
    assert looks.look(120).members is None
    assert looks.said() == []


def test_members_of_other_topics_read_no_others(looks):
    looks.send(9)
    place = TopicPartition("shop.retry.5s", 0)
    looks.members = [Member("w", frozenset({"orders"}), frozenset({place}))]
    looks.look()
    assert looks.look(120).members == {"w": 1}
    assert len(looks.said()) == 1
    looks.members = [Member("w", frozenset({"orders"}), frozenset({ORDERS}))]
    looks.look()
    assert looks.said() == []


def test_the_oldest_letter_without_a_decision_is_read_once(looks, monkeypatch):
    times = []
    for number in range(3):
        times.append(looks.sim.clock.advance(1000))
        looks.sim.broker.publish([Write("shop.dead", b"k", b"%d" % number, partition=0)])
    looks.unsettled = {0: 1}
    reads, batches = [], looks.log.batches
    read = lambda *how, **more: reads.append(1) or batches(*how, **more)  # noqa: E731 -- counts
    monkeypatch.setattr(looks.log, "batches", read)
    oldest = lambda: {each.topic: each.oldest for each in looks.look().nodes}["shop.dead"]  # noqa: E731 -- asked often
    assert [oldest(), oldest()] == [times[1]] * 2
    assert len(reads) == 1
    looks.unsettled = {0: 2}
    assert oldest() == times[2]
    looks.unsettled = {}
    assert oldest() is None


def test_only_topics_of_the_app_are_read(looks, monkeypatch):
    for name in ("other", "other.dead", "shopping.retry.5s", "shop2.dead"):
        looks.sim.broker.create(name, 1, {})
    asked = set()

    def noting(name, topics_of):
        real = getattr(looks.log, name)

        def ask(*given, **how):
            asked.update(topics_of(given[0]))
            return real(*given, **how)

        monkeypatch.setattr(looks.log, name, ask)

    noting("topics", lambda names: names)
    noting("all_bounds", lambda places: {place.topic for place in places})
    noting("batches", lambda place: {place.topic})
    looks.send(3)
    looks.look()
    assert asked == {"orders", "shop.retry.5s", "shop.dead"}
