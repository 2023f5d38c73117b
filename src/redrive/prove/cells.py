"""Cells: one delivery, brought to one failure point in real processes, and counted afterwards."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import psycopg

from redrive.choices import Engine
from redrive.config import load_settings
from redrive.failpoints import Point
from redrive.guarantees import GUARANTEES
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ledger.migrating import migrate
from redrive.prove.orders import Orders
from redrive.prove.runs import ProveError, Run, Runs, runs
from redrive.prove.service import Service, service
from redrive.prove.table import EFFECTS, Cell, Effects, Moment, Row
from redrive.record import TopicPartition, Write

if TYPE_CHECKING:
    from redrive.local import Stack

RECORD: Final = b"order-1"
_END: Final = 120.0
_POINTS: Final[dict[Moment, Point | None]] = {
    "no failure": None,
    "after POST and INSERT": "after-work",
    "after produce": "after-produce",
    "after database commit": "after-database-commit",
    "consumer time-out": "after-work",
}
_WAITERS: Final = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock'"
)


class Prover:
    """Produces cells on one stack."""

    def __init__(self, stack: Stack, engine: Engine) -> None:
        self._stack = stack
        self._engine: Engine = engine
        self._settings = load_settings({"bootstrap": stack.bootstrap}, environ={})
        self._admin = Admin(self._settings)
        self._topics = KafkaTopics(self._settings, admin=self._admin)
        self._publisher = KafkaPublisher(self._settings)

    def cell(self, row: Row, moment: Moment) -> Cell:
        """One cell; if there is no such point, nothing is run."""
        if row.expected[moment] is None:
            return Cell(row, moment, None)
        name = f"prove-{uuid.uuid4().hex[:8]}"
        with (
            tempfile.TemporaryDirectory(prefix="redrive-prove-") as folder,
            service(honours_keys=row.keys) as third_party,
            self._database(name) as database,
        ):
            orders = Orders(
                name=name,
                delivery=row.delivery,
                service=third_party.address,
                database=database,
                point=_POINTS[moment],
                act="stop" if moment == "consumer time-out" else "kill",
                marker=str(Path(folder) / "reached"),
                own_ids=row.own_ids,
                keys=row.keys,
            )
            self._prepare(orders)
            with runs(self._engine, orders, Path(folder), self._stack.bootstrap) as started:
                note = self._bring_about(orders, started, moment)
                if GUARANTEES[row.delivery].outbox:
                    started.relay()
            return self._count(row, moment, orders, third_party, note)

    # What a cell needs

    @contextmanager
    def _database(self, name: str) -> Iterator[str]:
        database = name.replace("-", "_")
        with psycopg.connect(self._stack.database, autocommit=True) as connection:
            connection.execute(f'create database "{database}"'.encode())
        dsn = self._stack.postgres.dsn(database)
        try:
            with psycopg.connect(dsn) as connection:
                connection.execute("create table effect (id text not null)")
                migrate(connection)
            yield dsn
        finally:
            with psycopg.connect(self._stack.database, autocommit=True) as connection:
                connection.execute(f'drop database "{database}" with (force)'.encode())

    def _prepare(self, orders: Orders) -> None:
        for topic in (orders.source, orders.outbound, f"{orders.name}.dead"):
            self._topics.create(topic, 1, {})
        self._publisher.publish([Write(orders.source, RECORD, RECORD)])

    # How it is produced

    def _bring_about(self, orders: Orders, started: Runs, moment: Moment) -> str:
        first = started.start()
        if orders.point is None:
            return self._ends_well(first)
        self._wait("the failure point", Path(orders.marker).exists, first)
        if moment == "consumer time-out":
            return self._time_out(first, started, orders)
        if self._engine == "worker":
            first.wait(_END)
            return self._ends_well(started.start())
        return self._ends_well(first)  # Spark reassigns the task of a worker that died

    def _time_out(self, first: Run, started: Runs, orders: Orders) -> str:
        """Freeze it at the point until its rival has finished or waits for it; then continue it."""
        first.freeze()
        rival = started.start()
        with psycopg.connect(orders.database, autocommit=True) as watch:
            self._wait(
                "the rival",
                lambda: rival.ended or bool(watch.execute(_WAITERS).fetchone()[0]),  # type: ignore[index]  # -- it counts
                rival,
            )
        waited = "" if rival.ended else "the rival waited on the id"
        first.go_on()
        self._ends_well(rival)
        first.wait(_END)
        return waited

    def _ends_well(self, run: Run) -> str:
        if run.wait(_END):
            raise ProveError(f"a run failed: {run.output()[-2000:]}")
        return ""

    def _wait(self, what: str, condition: Callable[[], bool], run: Run) -> None:
        end, pause = monotonic() + _END, threading.Event()
        while not condition():
            if run.ended and run.code and run.code > 0:
                raise ProveError(f"a run failed before {what}: {run.output()[-2000:]}")
            if monotonic() >= end:
                raise ProveError(
                    f"{what} was not reached within {_END:.0f} s: {run.output()[-2000:]}"
                )
            pause.wait(0.05)

    # What came of it

    def _count(
        self, row: Row, moment: Moment, orders: Orders, third_party: Service, note: str
    ) -> Cell:
        with psycopg.connect(orders.database) as connection:
            rows = connection.execute("select count(*) from effect").fetchone()
        counts = {
            "POST": third_party.posts[RECORD.decode()],
            "INSERT": 0 if rows is None else int(rows[0]),
            "PRODUCE": self._outbound(orders.outbound),
        }
        doubled: Effects = tuple(effect for effect in EFFECTS if counts[effect] > 1)
        lost: Effects = tuple(effect for effect in EFFECTS if counts[effect] == 0)
        return Cell(row, moment, doubled, lost, note)

    def _outbound(self, topic: str) -> int:
        log = KafkaLog(self._settings, "redrive-prove", admin=self._admin)
        try:
            place = TopicPartition(topic, 0)
            return len(log.read(place, *log.bounds(place)))
        finally:
            log.close()
