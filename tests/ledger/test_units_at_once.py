"""Units of work side by side in one process: on threads, and on an event loop."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sides import PATIENCE, effects, waits_for_a_rival

from redrive import App, header
from redrive.clock import WallClock
from redrive.delivery.flush import FlushDelivery
from redrive.delivery.unit import Tools
from redrive.delivery.units import Units
from redrive.guarantees import GUARANTEES
from redrive.ledger.store import PostgresStore
from redrive.local.waiting import wait_until
from redrive.processing.acks import AckTracker
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.executors import executor_for
from redrive.processing.processor import PartitionProcessor
from redrive.processing.resources import Resources
from redrive.processing.scope import Scope
from redrive.record import Record, TopicPartition
from redrive.testing.broker import MemoryBroker


class Process:
    """One process of an app, with as many threads or tasks as it asks for."""

    def __init__(self, app: App, dsn: str) -> None:
        self.app = app
        clock = WallClock()
        broker = MemoryBroker(clock)  # type: ignore[arg-type]  # -- whatever tells the time
        for topic in ("told", app.dead_topic):
            broker.create(topic)
        scope = Scope(app, {}, clock=clock)
        self._store = PostgresStore(dsn, app.name, connections=app.database_connections)
        tools = Tools(scope, GUARANTEES[app.delivery], broker, clock)
        scope.units = Units(tools, self._store)
        self._delivery = FlushDelivery(broker, clock)
        self._dispatcher = Dispatcher(clock, app.concurrency, self._delivery.take)
        self._tracker = AckTracker()
        self._tracker.assign()
        self._processor = PartitionProcessor(scope, TopicPartition("orders", 0), self._tracker)
        self._dispatcher.add(self._processor)
        self._executor = executor_for(app, scope, Resources(app))
        self._executor.start(self._dispatcher)
        self.kinds: Counter[str] = Counter()

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
        self.kinds.update(outcome.kind for _, outcome in self._delivery.pump())
        return self._tracker.in_flight == 0

    def close(self) -> None:
        self._executor.close()
        self._store.close()


@pytest.fixture
def process(database, connection) -> Iterator[Callable[[App], Process]]:
    connection.execute("create table effect (value text not null)")
    connection.commit()
    made: list[Process] = []

    def make(app: App) -> Process:
        made.append(Process(app, database))
        return made[-1]

    yield make
    for each in made:
        each.close()


def shop(**options: Any) -> App:
    return App("shop", delivery="idempotent", **options)


def handle(app: App, *, is_async: bool, during: Callable[[], None] = lambda: None) -> None:
    insert = "insert into effect (value) values (%s)"

    def handler(record, ctx):
        ctx.db.execute(insert, [record.value.decode()])
        during()

    async def async_handler(record, ctx):
        await ctx.db.execute(insert, [record.value.decode()])

    app.handler("orders", id=header("id"))(async_handler if is_async else handler)


def test_the_same_id_under_two_keys_has_one_effect_and_hangs_nobody(process, connection) -> None:
    app = shop(concurrency=2)
    first = threading.Event()

    def until_the_other_waits() -> None:
        first.set()
        waits_for_a_rival(connection)

    handle(app, is_async=False, during=until_the_other_waits)
    made = process(app)
    made.offer(("1", "a"), ("1", "b"))
    made.wait_until_done()
    assert first.is_set()
    assert effects(connection) == ["1"]
    assert made.kinds == {"duplicate": 1}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("connections", [1, 3])
def test_many_units_share_few_connections(
    process, connection, is_async: bool, connections: int
) -> None:
    app = shop(concurrency=16, database_connections=connections)
    handle(app, is_async=is_async)
    made = process(app)
    names = [f"{number:03}" for number in range(300)]
    # Each id twice, under keys of their own: rivals in one process.
    made.offer(*[(name, f"first {name}") for name in names], *[(name, name) for name in names])
    made.wait_until_done()
    assert effects(connection) == names
    assert made.kinds == {"duplicate": len(names)}
    [(sessions,)] = connection.execute(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and application_name = 'redrive shop'"
    ).fetchall()
    assert 1 <= sessions <= connections


def test_the_next_record_of_a_key_sees_what_the_one_before_it_has_committed(
    process, connection, database
) -> None:
    import psycopg

    app = shop(concurrency=8)
    seen: list[tuple[int, int]] = []

    @app.handler("orders", id=header("id"))
    def look(record, ctx):
        with psycopg.connect(database) as other:
            query = "select count(*) from effect where value like %s"
            [(committed,)] = other.execute(query, [f"{record.key.decode()}%"]).fetchall()
            [(all_of_them,)] = ctx.db.execute(query, [f"{record.key.decode()}%"]).fetchall()
        seen.append((int(record.value.decode()[1:]), all_of_them))
        assert committed <= all_of_them
        ctx.db.execute("insert into effect (value) values (%s)", [record.value.decode()])

    made = process(app)
    made.offer(*[(f"{key}{number}", key) for number in range(8) for key in "abcd"])
    made.wait_until_done()
    assert sorted(seen) == [(number, number) for number in range(8) for _ in "abcd"]
