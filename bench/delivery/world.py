"""What the benchmarks of the ledger stand on: a stack of their own, databases, topics."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time

import psycopg

from redrive.config import Settings, load_settings
from redrive.kafka.log import KafkaLog
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ledger.migrating import migrate
from redrive.ledger.outbox import Outbound, Outbox
from redrive.local import Stack, stack
from redrive.local.folders import jars_folder
from redrive.local.waiting import wait_until
from redrive.record import Record, TopicPartition, Write

APP = "bench"
KEYS = 1000
PARTITIONS = 4
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
PATIENCE = 300


@dataclass
class World:
    """Kafka and PostgreSQL, and a folder for files."""

    stack: Stack
    folder: Path
    _names: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    def post(self) -> Post:
        """A new database with the ledger, and a new topic."""
        name = f"bench_{next(self._names)}"
        with psycopg.connect(self.stack.database, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        dsn = self.stack.postgres.dsn(name)
        with psycopg.connect(dsn, autocommit=True) as connection:
            migrate(connection)
        settings = load_settings({"bootstrap": self.stack.bootstrap, "database": dsn})
        KafkaTopics(settings).create(name, PARTITIONS, APPEND_TIME)
        return Post(name, settings)


class Post:
    """An outbox and the topic it goes to, whose records bear the time when the broker took them."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.dsn = settings.dsn()
        self._outbox = Outbox(APP)
        self._log = KafkaLog(settings, "bench")
        self._sent = 0

    def fill(self, rows: int, lot: int = 500) -> float:
        """Rows, in transactions of that size; gives when the last was committed, in ms."""
        with psycopg.connect(self.dsn) as connection:
            for begin in range(0, rows, lot):
                self._insert(connection, min(lot, rows - begin))
            return time() * 1000

    def at_rate(self, rate: int, seconds: int) -> dict[int, float]:
        """Rows at a steady rate, in steps of 10 ms; gives when each was committed, in ms."""
        committed: dict[int, float] = {}
        tick, start, sent = threading.Event(), monotonic(), 0
        with psycopg.connect(self.dsn) as connection:
            while sent < rate * seconds:
                due = min(int((monotonic() - start) * rate), rate * seconds)
                if due > sent:
                    first = self._insert(connection, due - sent)
                    now = time() * 1000
                    committed |= dict.fromkeys(range(first, self._sent), now)
                    sent = due
                tick.wait(0.01)
        return committed

    def wait_for(self, rows: int) -> None:
        """Until so many arrived, of all that were ever sent here."""
        if not wait_until(lambda: self._ends() >= rows, PATIENCE):
            raise SystemExit(f"only {self._ends()} of {rows} rows arrived within {PATIENCE} s")

    def arrived(self, skip: int = 0) -> list[Record]:
        """What arrived, without the first ones that were sent."""
        found = [one for place in self._places() for one in self._log.read(place, *self._of(place))]
        return [one for one in found if _number(one) >= skip]

    @property
    def sent(self) -> int:
        return self._sent

    def _insert(self, connection: psycopg.Connection, rows: int) -> int:
        first = self._sent
        self._outbox.insert(connection, [_row(self.name, first + n) for n in range(rows)])
        connection.commit()
        self._sent += rows
        return first

    def _of(self, place: TopicPartition) -> tuple[int, int]:
        return self._log.bounds(place)

    def _ends(self) -> int:
        bounds = self._log.all_bounds(self._places())
        return sum(end - begin for begin, end in bounds.values())

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(PARTITIONS)]


def _row(topic: str, number: int) -> Outbound:
    value = b'{"number": %d, "text": "%s"}' % (number, b"x" * 150)
    return Outbound(Write(topic, b"key-%d" % (number % KEYS), value))


def _number(record: Record) -> int:
    return int(record.value[11:].partition(b",")[0])


def latencies(committed: dict[int, float], arrived: Sequence[Record]) -> list[float]:
    """From the commit to the broker's time, of first appearances, in ms."""
    first: dict[int, int] = {}
    for record in arrived:
        number = _number(record)
        first[number] = min(first.get(number, record.timestamp), record.timestamp)
    return [max(0.0, at - committed[number]) for number, at in first.items()]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def world() -> Iterator[World]:
    """Start everything, and end it."""
    # The stack has a folder of its own, but not its own copy of the jars.
    os.environ.setdefault("REDRIVE_JARS", str(jars_folder()))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        with stack(home=Path(folder) / "stack") as running:
            yield World(running, Path(folder))
