"""Cluster: brokers in memory, with what can go wrong between them and whoever asks them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from math import inf
from typing import Any, Final

from redrive.kafka.errors import BrokerError, NoLeaderError
from redrive.ports import Position
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from simulation.database import Database
from simulation.group import Group
from simulation.scheduler import Task, Waiter, World

BEGINNING: Final = 1_700_000_000_000


class BrokerClock:
    """The brokers' clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> int:
        return BEGINNING + int(self._world.now * 1000)

    def was_set(self) -> int:
        return 0


class Cluster:
    """What all simulated processes share, and what lives on when they die."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.clock = BrokerClock(world)
        self.broker = MemoryBroker(self.clock, seed=seed)
        self.database = Database(world, self)
        self.groups: dict[str, Group] = {}
        self.silent_until = -inf
        """Until when no broker answers."""
        self.coordinator_until = -inf
        """Until when no coordinator answers: neither of groups nor of transactions."""
        self.leaderless: dict[TopicPartition, float] = {}
        self.refusing: dict[str, tuple[str, float]] = {}
        """Topics that refuse all writes, why, and until when."""
        self.spoilt: dict[bytes, str] = {}
        """Values that a broker refuses, with the whole batch that they are in; and why."""
        self.producers: list[Any] = []
        self.queue_size = 100_000
        """Messages that a producer holds, at most."""
        self.latency = 0.002
        self.lose_answers = 0.0
        """How often something is done, and nobody hears of it."""
        self.refuse_commits = 0.0
        self.epochs: dict[str, int] = {}
        """Of each transactional id, who had it last."""
        self.readers: list[Waiter] = []
        """Whoever waits for something to read."""
        self.mistakes = 0
        """How many answers will be nonsense."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._news: Task | None = None

    # Time of requests

    def begin(self) -> None:
        """Run what happens later, and what coordinators do by themselves."""
        self.world.spawn(self._run, "cluster", self.world.machinery)

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Have something happen; whoever asked for it may be dead by then."""
        self._numbers += 1
        heapq.heappush(self._events, (self.world.now + seconds, self._numbers, event))
        if self._news is not None:
            self.world.rouse(self._news)

    def travel(self) -> float:
        """How long a message takes, mostly."""
        chance = self.world.random.random()
        return self.latency * (0.2 + 2 * chance) * (1 if chance < 0.97 else 60)

    def ask(self, what: str, patience: float = 30.0, *, coordinator: bool = False) -> None:
        """Wait for an answer, as long as brokers are silent; BrokerError when it takes too long."""
        world = self.world
        world.point()
        until = world.now + patience
        world.sleep(self.travel())
        while self.silent_until > world.now or (coordinator and self.coordinator_until > world.now):
            if world.now >= until:
                raise BrokerError(f"cannot {what} (_TRANSPORT: simulated): no broker answers")
            world.sleep(min(0.5, until - world.now))

    def _run(self) -> None:
        world = self.world
        self._news = world.current
        look = world.now
        while True:
            while self._events and self._events[0][0] <= world.now:
                heapq.heappop(self._events)[2]()
            if world.now >= look:
                look = world.now + 0.5
                for group in self.groups.values():
                    group.look()
            due = min(look, self._events[0][0] if self._events else inf)
            world.wait(due - world.now)

    def watch(self, history: Any) -> None:
        """Tell somebody of all that is written and committed."""
        self.history = history

    # What it keeps

    def group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group(self, name))

    def committed(self, group: str) -> dict[TopicPartition, Position]:
        progress = self.broker.progress(group)
        places = [
            TopicPartition(name, number)
            for name in self.broker.names()
            for number in range(self.broker.partitions(name))
        ]
        return progress.committed(places)

    def append(self, writes: Collection[Write]) -> None:
        """Write what was accepted, and wake who waits to read it."""
        for write in writes:
            self._append(write)
        self.wake_readers()

    def _append(self, write: Write) -> None:
        place = TopicPartition(write.topic, write.partition or 0)
        offset = self.broker.bounds(place)[1]
        self.broker.publish([write])
        self.history.wrote(write.topic, place.partition, offset, write.value)

    def store(self, group: str, positions: dict[TopicPartition, Position]) -> None:
        """Commit progress."""
        self.broker.progress(group).commit(positions)
        for place, position in positions.items():
            self.history.commits(place, position)

    def commit(
        self, group: str, writes: Collection[Write], positions: dict[TopicPartition, Position]
    ) -> None:
        """End a transaction: all of it is there at once, with a marker behind it."""
        for write in writes:
            self._append(write)
        for place in {TopicPartition(each.topic, each.partition or 0) for each in writes}:
            self.broker.gap(place)
        if positions:
            self.store(group, positions)
        self.wake_readers()

    def wake_readers(self) -> None:
        readers, self.readers = self.readers, []
        for each in readers:
            self.world.wake(each)

    def has_leader(self, place: TopicPartition) -> bool:
        return self.leaderless.get(place, -inf) <= self.world.now

    def check_leaders(self, places: Collection[TopicPartition], patience: float) -> None:
        until = self.world.now + patience
        while not all(map(self.has_leader, places)):
            if self.world.now >= until:
                raise NoLeaderError(places)
            self.world.sleep(0.5)

    def refusal_of(self, topic: str) -> str | None:
        reason, until = self.refusing.get(topic, ("", -inf))
        return reason if until > self.world.now else None

    def take_over(self, name: str) -> int:
        self.epochs[name] = self.epochs.get(name, 0) + 1
        return self.epochs[name]

    def heal(self) -> None:
        """Everything works again."""
        self.silent_until = self.coordinator_until = self.database.down_until = -inf
        self.database.lose_answers = 0.0
        self.leaderless.clear()
        self.refusing.clear()
        self.lose_answers = self.refuse_commits = 0.0
        self.wake_readers()
