"""Processes: what runs lots as units of work, with a broker in memory and a real database."""

from __future__ import annotations

from collections import Counter

from sides import PATIENCE

from redrive import App
from redrive.clock import WallClock
from redrive.delivery.flush import FlushDelivery
from redrive.delivery.unit import Tools
from redrive.delivery.units import Units
from redrive.guarantees import GUARANTEES
from redrive.ledger.postgres_store import PostgresStore
from redrive.local.waiting import wait_until
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import executor_for
from redrive.processing.execution.resources import Resources
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing.memory_broker import MemoryBroker


class Process:
    """One process of an app, with as many threads or tasks as it asks for."""

    def __init__(self, app: App, dsn: str) -> None:
        self.app = app
        clock = WallClock()
        broker = MemoryBroker(clock)  # type: ignore[arg-type]  # -- whatever tells the time
        for topic in ("told", app.dead_topic, *app.delay_topics):
            late = {"message.timestamp.type": "LogAppendTime"} if topic in app.delay_topics else {}
            broker.create(topic, 1, late)
        scope = Scope(app, {}, clock=clock)
        self._store = PostgresStore(dsn, app.name, connections=app.database_connections)
        tools = Tools(scope, GUARANTEES[app.delivery], broker, clock)
        self._units = scope.units = Units(tools, self._store)
        self._delivery = FlushDelivery(broker, clock)
        self._dispatcher = Dispatcher(clock, app.concurrency, self._delivery.add)
        self._tracker = AckTracker()
        self._processor = PartitionProcessor(scope, TopicPartition("orders", 0), self._tracker)
        self._dispatcher.add(self._processor)
        self._executor = executor_for(app, scope, Resources(app), self._units)
        self._executor.start(self._dispatcher)
        self.kinds: Counter[str] = Counter()
        self.hung = 0
        self._closed = False

    def offer(self, *records: tuple[str, str]) -> None:
        """Take in records: id and key; the value is the id."""
        self._dispatcher.offer(
            self._processor,
            [
                Record("orders", 0, number, key.encode(), name.encode(), (("id", name.encode()),))
                for number, (name, key) in enumerate(records)
            ],
        )

    def wait_until_done(self) -> None:
        assert wait_until(self._is_done, PATIENCE)

    def _is_done(self) -> bool:
        self._dispatcher.tick()
        self.hung += self._executor.give_up_hung()
        ended = [each for _, each in self._delivery.pump() if not isinstance(each, int)]
        self.kinds.update(outcome.kind for outcome in ended)
        return self._tracker.in_flight == 0

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._executor.close()
            self._store.close()
