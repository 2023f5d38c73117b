"""The simplest engine: one thread, one pass at a time, over the same protocols as the real ones.

It reads what is there, runs what may run, writes the results and commits: nothing happens between
passes. `Simulation` drives it in virtual time; the contract suites drive it on Kafka too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.delivery.flush import FlushDelivery
from redrive.delivery.store import Store
from redrive.delivery.unit import Tools
from redrive.delivery.units import Units
from redrive.engines.rules_watch import RulesWatch
from redrive.engines.waiting_rooms import gate_of, rooms_of
from redrive.ports import Clock, Log, Position, Progress, Publisher
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.report import Outcome
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.parked_rules import ParkedRule
    from redrive.processing.order.key_gate import KeyGate


@dataclass
class _Assigned:
    processor: PartitionProcessor
    position: int


class Runner:
    """Runs an app, pass by pass."""

    def __init__(
        self,
        app: App,
        *,
        log: Log,
        progress: Progress,
        publisher: Publisher,
        clock: Clock,
        resources: Mapping[str, object] | None = None,
        store: Store | None = None,
        watch: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._strict = app.ordering == "strict"
        self._log = log
        self._progress = progress
        self._clock = clock
        self._watch = watch
        self._topic_ids: dict[str, str] = {}
        self._scope = Scope(app, self._topic_ids, clock=clock, guarded=True)
        self._deaths: list[BaseException] = []
        self._scope.on_death = self._deaths.append
        self.units: Units | None = None
        if store is not None:
            tools = Tools(self._scope, app.guarantee, publisher, clock)
            self.units = self._scope.units = Units(tools, store, inbox_ttl=app.inbox_ttl)
        self._delivery = FlushDelivery(publisher, clock, self._scope.sent_without_unit)
        self._dispatcher = Dispatcher(
            clock, app.concurrency, self._delivery.add, self._scope.guards
        )
        self._executor = InlineExecutor(self._scope, Resources(app, resources), self.units)
        self._executor.start(self._dispatcher)
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._rules = RulesWatch(app, log, every=0, on_change=self._take_rules)

    def run(self) -> None:
        """Do everything that can be done now, and commit it."""
        self._rules.look()
        moved = True
        while moved:
            moved = self._read()
            self._dispatcher.tick()
            moved = self._executor.run() > 0 or moved
            if self._deaths:
                break
            moved = self._go_back() or moved
            complete = self._delivery.pump()
            for _, ended in complete:
                if not isinstance(ended, int):
                    self._watch(ended)
            # What was written may be for this app and must be read: a hop needs no handler.
            moved = moved or bool(complete) or self._delivery.outstanding
            if self._strict and not moved:
                moved = self._commit() or self._go_back()
        self._commit()
        if self._deaths:
            raise self._deaths.pop()

    def next_due(self) -> int | None:
        """When there will be something to do without a new record."""
        times = (self._dispatcher.tick(), self._delivery.next_due())
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """Close what the app opened. Nothing is committed: that happens at the end of each pass."""
        self._executor.close()

    def crash(self) -> None:
        """Stop without closing what the app opened."""
        self._executor.abandon()

    def _take_rules(self, rules: tuple[ParkedRule, ...]) -> None:
        self._scope.parked_rules = rules
        self._dispatcher.look_again()

    def _read(self) -> bool:
        found = False
        for partition in self._partitions():
            assigned = self._assigned.get(partition) or self._assign(partition)
            _, end = self._log.bounds(partition)
            if end <= assigned.position:
                continue
            records = self._log.read(partition, assigned.position, end)
            assigned.position = end
            self._dispatcher.offer(assigned.processor, records)
            assigned.processor.tracker.received_up_to(end)
            self._dispatcher.reached(assigned.processor, end)
            found = True
        return found

    def _partitions(self) -> Iterator[TopicPartition]:
        waiting = () if self._strict else self._app.waiting_topics(self._log.names())
        for topic in (*self._app.handlers, *waiting):
            for number in range(self._log.partitions(topic)):
                yield TopicPartition(topic, number)
        if self._strict:  # rooms are taken up with their source partition
            yield from [place for place in self._assigned if place.topic not in self._app.handlers]

    def _assign(self, partition: TopicPartition) -> _Assigned:
        if not self._strict:
            return self._open(partition)
        counts = {name: self._log.partitions(name) for name in self._log.names()}
        places = [partition, *rooms_of(self._app, partition, counts)]
        committed = self._progress.committed(places)
        starts = {
            place: committed.get(place, Position(self._log.bounds(place)[0])) for place in places
        }
        start = starts.pop(partition).offset
        gate = gate_of(self._app, self._log, partition, start, starts)
        found = self._open(partition, gate)
        for place in starts:
            self._open(place, gate)
        return found

    def _open(self, partition: TopicPartition, gate: KeyGate | None = None) -> _Assigned:
        committed = self._progress.committed([partition]).get(partition)
        tracker = AckTracker(committed)
        self._topic_ids.setdefault(partition.topic, self._log.topic_id(partition.topic))
        delay = self._app.delay_of(partition.topic)
        processor = PartitionProcessor(self._scope, partition, tracker, delay=delay, gate=gate)
        self._dispatcher.add(processor)
        start = self._log.bounds(partition)[0] if committed is None else committed.offset
        self._assigned[partition] = _Assigned(processor, start)
        return self._assigned[partition]

    def _go_back(self) -> bool:
        seeks = [(each, each.processor.take_seek()) for each in self._assigned.values()]
        for assigned, seek in seeks:
            if seek is not None:
                assigned.position = seek
        return any(seek is not None for _, seek in seeks)

    def _commit(self) -> bool:
        """Commit; whether something is to do that had to wait for it."""
        positions = {
            partition: position
            for partition, assigned in self._assigned.items()
            if (position := assigned.processor.tracker.position()) is not None
        }
        self._progress.commit(positions)
        for partition, position in positions.items():
            self._dispatcher.committed(self._assigned[partition].processor, position)
        return not self._dispatcher.idle
