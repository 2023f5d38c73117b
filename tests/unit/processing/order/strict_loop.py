"""The loop of a worker in strict order, turn by turn, on a broker in memory.

Each turn does what `engines/worker/loop.py` does, in its order: read, offer, run, write, commit, go
back, pause. What was asked for arrives some turns later, and is thrown away if reading goes back
meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from redrive import App, RetryPolicy
from redrive import envelope as envelopes
from redrive.delivery.flush import FlushDelivery
from redrive.engines.waiting_rooms import gate_of, rooms_of
from redrive.engines.worker.partition import Partition
from redrive.ports import Position
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.order.key_gate import KeyGate
from redrive.record import Record, TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock

SOURCE = TopicPartition("orders", 0)
BEHIND = TopicPartition("items.retry.behind", 0)
_DELAY_TOPIC = {"message.timestamp.type": "LogAppendTime"}


class Failing:
    """A handler that fails as often as it is told to, and remembers what it has done."""

    def __init__(self, **fails: int) -> None:
        self.fails = fails
        self.done: list[str] = []

    def __call__(self, record: Record, ctx: object) -> None:
        value = (record.value or b"").decode()
        if self.fails.get(value, 0) > 0:
            self.fails[value] -= 1
            raise ConnectionError(value)
        self.done.append(value)

    def of(self, key: str) -> list[str]:
        """What was done of one key."""
        return [value for value in self.done if value[0] == key]


def strict_app(handler: Failing, retry: RetryPolicy | str, **options: int) -> App:
    """An app with one source topic."""
    policy = RetryPolicy(retry) if isinstance(retry, str) else retry
    app = App("items", ordering="strict", retry=policy, **options)  # type: ignore[arg-type]  # -- numbers
    app.handler("orders")(handler)
    return app


def written_by_operator(record: Record, topic: str, operation: str, now: int) -> Write:
    """A copy as a replay or a rewind writes it."""
    fresh = envelopes.fresh(record, app="items", message_id=f"x{record.offset}", now=now)
    envelope = replace(fresh, due=now, operation=operation)
    return Write(topic, record.key, record.value, envelope.headers(()), record.partition)


class StrictLoop:
    """A worker with one source partition and its rooms."""

    def __init__(
        self,
        handler: Failing,
        retry: RetryPolicy | str,
        *,
        latency: int = 1,
        max_in_flight: int = 10_000,
        **options: int,
    ) -> None:
        self.app = strict_app(handler, retry, **options)
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.latency = latency
        self.max_in_flight = max_in_flight
        self.seeks: list[tuple[str, int]] = []
        topics = ("orders", self.app.behind_topic, self.app.dead_topic)
        for topic in (*topics, *self.app.delay_topics):
            delayed = topic in self.app.delay_topics
            self.broker.create(topic, 1, _DELAY_TOPIC if delayed else None)
        self._turn = 0
        self._start()

    def _start(self) -> None:
        scope = Scope(self.app, {}, clock=self.clock)
        self.delivery = FlushDelivery(self.broker, self.clock, scope.sent_without_unit)
        self.dispatcher = Dispatcher(self.clock, 4, self.delivery.add)
        self._progress = self.broker.progress(self.app.name)
        counts = {name: self.broker.partitions(name) for name in self.broker.names()}
        places = [SOURCE, *rooms_of(self.app, SOURCE, counts)]
        committed = self._progress.committed(places)
        starts = {place: committed.get(place, Position(0)) for place in places}
        rooms = {place: start for place, start in starts.items() if place != SOURCE}
        self.gate: KeyGate = gate_of(
            self.app,
            self.broker,
            SOURCE,
            starts[SOURCE].offset,
            rooms,
            max_in_flight=self.max_in_flight,
        )
        self.partitions = {
            place: Partition(
                scope, place, start, delay=self.app.delay_of(place.topic), gate=self.gate
            )
            for place, start in starts.items()
        }
        self._committed: dict[TopicPartition, Position] = {}
        self._position = {place: start.offset for place, start in starts.items()}
        self._ready_at = dict.fromkeys(places, 0)
        for each in self.partitions.values():
            self.dispatcher.add(each.processor)

    def restart(self, lots: Collection[Lot] = ()) -> None:
        """Kill it, with what it runs, and start another."""
        for each in self.partitions.values():
            self.dispatcher.remove(each.processor)
        for lot in lots:
            self.dispatcher.report(lot)
        self._start()

    def send(self, *values: str) -> None:
        """Write records; their key is their first letter."""
        self.broker.publish([Write("orders", v[0].encode(), v.encode(), (), 0) for v in values])

    def replay(self, records: Collection[Record], topic: str, operation: str = "op") -> None:
        """Write copies, as operators do."""
        now = self.clock.now()
        self.broker.publish(
            [written_by_operator(record, topic, operation, now) for record in records]
        )

    def turns(self, count: int, *, each: int = 0, fetch: int = 1000) -> None:
        """Turn so often, with so many milliseconds before each turn."""
        for _ in range(count):
            self.clock.advance(each)
            self.turn(fetch=fetch)

    def turn(self, *, fetch: int = 1000, runs: bool = True, commits: bool = True) -> None:
        """One turn; with `runs` all runs that can."""
        self._turn += 1
        self.dispatcher.tick()
        for place, each in self.partitions.items():
            if self._turn >= self._ready_at[place] and not each.paused:
                self._read(place, each, fetch)
        while runs and (lot := self.dispatcher.take()) is not None:
            lot.run()
            self.dispatcher.report(lot)
        while self.delivery.pump() or self.delivery.outstanding:
            pass
        if commits:
            self.commit(self.partitions)
        for place, each in self.partitions.items():
            offset = self.dispatcher.take_seek(each.processor)
            if offset is not None:
                self.seeks.append((place.topic, offset))
                self._position[place] = offset
                each.went_back(offset)
                self._ready_at[place] = self._turn + 1 + self.latency
        for each in self.partitions.values():
            each.paused = each.wants_pause(self.max_in_flight, 10**9)

    def _read(self, place: TopicPartition, each: Partition, fetch: int) -> None:
        end = self.broker.bounds(place)[1]
        to = min(end, self._position[place] + fetch)
        records = self.broker.read(place, self._position[place], to)
        if records:
            self._position[place] = to
            if self.dispatcher.offer(each.processor, records):
                each.note_received(list(records), [])
        if to == end and not each.processor.goes_back:
            each.reached(end)
            self.dispatcher.reached(each.processor, end)

    def commit(self, places: Collection[TopicPartition]) -> None:
        """Commit some partitions."""
        for place in places:
            each = self.partitions[place]
            position = each.position()
            if position is not None and position != self._committed.get(place):
                self._committed[place] = position
                self._progress.commit({place: position})
                self.dispatcher.committed(each.processor, position)

    @property
    def left(self) -> list[str]:
        """What is not over, and should be at the end."""
        kept = {name: each for name, each in vars(self.gate).items() if each}
        spots = [name for name, each in kept.items() if isinstance(each, set)]
        dicts = [(name, each) for name, each in kept.items() if isinstance(each, dict)]
        by_key = [name for name, each in dicts if any(isinstance(key, bytes) for key in each)]
        return [*spots, *by_key, *(["keys"] if self.gate.keys else [])]
