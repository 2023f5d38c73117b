"""An engine, as the contract suites see it: apps are started, waited for, stopped and killed.

An engine is added by one more class and one more parameter of the `engine` fixture; the suites know
of no other difference.
"""

from __future__ import annotations

import json
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Producer

from redrive import App
from redrive.config import SecurityArguments, Settings, load_settings
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.loading import load_app
from redrive.local.waiting import wait_until
from redrive.ports import Position
from redrive.record import Record, TopicPartition, Write
from redrive.topics import all_topic_names, apply, plan_topics


class Running(Protocol):
    """An app that an engine runs."""

    def check(self) -> None:
        """Raise the error that ended the run, if one did."""
        ...

    def stop(self) -> None:
        """Let it end what it has begun."""
        ...

    def kill(self) -> None:
        """End it on the spot."""
        ...


class EngineUnderTest(Protocol):
    """Starts apps."""

    name: str

    def start(self, target: str, bootstrap: str, **options: Any) -> Running: ...


_NEW: dict[str, Any] = {"new_app": True}
"""Each test's app is: otherwise it would look at those of all tests before it."""


class OnSpark:
    """Both lanes in a Spark session that all tests share."""

    name = "spark"

    def __init__(self, session: Any) -> None:
        self._session = session

    def start(self, target: str, bootstrap: str, **options: Any) -> Running:
        import redrive.spark

        options = {**_NEW, **options}
        return _SparkRun(redrive.spark.start(self._session, target, bootstrap=bootstrap, **options))


class _SparkRun:
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def check(self) -> None:
        self.handle.check()

    def stop(self) -> None:
        self.handle.stop()

    def kill(self) -> None:
        for query in self.handle.queries.values():
            query.stop()


class OnWorker:
    """A worker in this process."""

    name = "worker"

    def start(self, target: str, bootstrap: str, **options: Any) -> Running:
        from redrive.worker import Options, start

        options = {**_NEW, **options}
        settings = {"bootstrap": bootstrap, "security": options.pop("security", {})}
        return _WorkerRun(start(target, options=Options(**options), **settings))


class _WorkerRun:
    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.handle = worker

    def check(self) -> None:
        self.worker.check()

    def stop(self) -> None:
        self.worker.stop()
        self.worker.check()

    def kill(self) -> None:
        self.worker.stop()


class World:
    """A Kafka with the topics of one app, and what its handlers have told."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        prefix: str,
        security: SecurityArguments | None = None,
        *,
        patience: float = 60,
    ) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.prefix = prefix
        self.settings: Settings = load_settings(
            {"bootstrap": bootstrap, "security": security or {}}, environ={}
        )
        self.admin = Admin(self.settings, patience=patience)
        self.topics = KafkaTopics(self.settings, admin=self.admin)
        self.log = KafkaLog(self.settings, f"{prefix}.reader", admin=self.admin, patience=patience)
        self.publisher = KafkaPublisher(self.settings)
        self._notes = folder / "notes.jsonl"
        self._notes_read = 0
        self._reading = threading.Lock()
        self._told: list[dict[str, Any]] = []

    # The app

    def app(self, source: str, partitions: int = 2) -> str:
        """Write the app's module and create its topics; gives `module:app`.

        The module knows NAME (the app's), `topic()` (a topic's full name) and `note()` (to tell the
        test something).
        """
        module = f"app_{self.prefix.replace('-', '_')}"
        text = _HEAD.format(name=self.prefix, notes=str(self._notes)) + textwrap.dedent(source)
        (self.folder / f"{module}.py").write_text(text)
        target = f"{module}:app"
        loaded = load_app(target, self.folder)
        for name in loaded.handlers:
            self.create(name, partitions)
        self.create_own(loaded)
        return target

    def loaded(self, target: str) -> App:
        return load_app(target, self.folder)

    def create(self, topic: str, partitions: int = 1) -> None:
        if not self.topics.describe([topic]):
            self.topics.create(topic, partitions, {})

    def create_own(self, app: App) -> None:
        """Make the topics that are the app's own."""
        described = self.topics.describe(all_topic_names(app))
        failed = [error for _, error in apply(plan_topics(app, described), self.topics) if error]
        assert not failed

    # What goes in and comes out

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def send(self, topic: str, *values: bytes, key: bytes | None = None) -> None:
        full = self.topic(topic)
        self.publisher.publish([Write(full, key or value, value) for value in values])

    @contextmanager
    def open_transaction(self, write: Write) -> Iterator[None]:
        """A message in a transaction that is committed at the end."""
        config = {"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.prefix}-open"}
        producer = Producer(config)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(write.topic, write.value, write.key, headers=list(write.headers))
        producer.flush()
        yield
        producer.commit_transaction()

    def records(self, topic: str) -> list[Record]:
        """All that was committed to the topic, partition by partition."""
        places = self.places(topic)
        wait_for_markers(self.admin, self.log, places)
        return [
            record for place in places for record in self.log.read(place, *self.log.bounds(place))
        ]

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records(topic)]

    def count(self, topic: str) -> int:
        """At most so many: offsets have gaps."""
        bounds = self.log.all_bounds(self.places(topic))
        return sum(end - begin for begin, end in bounds.values())

    def places(self, topic: str) -> list[TopicPartition]:
        full = self.topic(topic)
        return [TopicPartition(full, number) for number in range(self.log.partitions(full))]

    @cached_property
    def progress(self) -> KafkaProgress:
        """Kept: each has a consumer, which costs a broker more than its answers do."""
        return KafkaProgress(self.settings, self.prefix, admin=self.admin)

    def committed(self, topic: str) -> dict[TopicPartition, Position]:
        return self.progress.committed(self.places(topic))

    def commit(self, positions: dict[TopicPartition, Position]) -> None:
        self.progress.commit(positions)

    def lag(self, topic: str) -> int:
        committed = self.committed(topic)
        bounds = self.log.all_bounds(self.places(topic))
        return sum(
            end - (committed[place].offset if place in committed else begin)
            for place, (begin, end) in bounds.items()
        )

    def notes(self) -> list[dict[str, Any]]:
        """What handlers have told, in the order in which they did."""
        if not self._notes.exists():
            return []
        with self._reading, self._notes.open("rb") as file:  # some look from threads of their own
            file.seek(self._notes_read)
            # Only what is new: whoever is watched needs the processor as well.
            news = file.read()
            whole = news.rfind(b"\n") + 1
            self._notes_read += whole
            self._told += [note for line in news[:whole].splitlines() if (note := _parsed(line))]
            return [*self._told]

    def wait(
        self, run: Running | None, what: str, condition: Callable[[], bool], timeout: float = 60
    ) -> None:
        """Wait until it holds; an error that ends the run is raised meanwhile."""

        def holds() -> bool:
            if condition():
                return True
            if run is not None:
                run.check()
            return False

        # Not more often: asking a broker costs what the run needs itself.
        assert wait_until(holds, timeout, pause=0.1), f"{what}: not within {timeout:.0f} s"

    def close(self) -> None:
        self.log.close()
        self.progress.close()


def gauges(run: Any, name: str) -> dict[str, float]:
    """A figure of a run, by topic or lane; as Prometheus gets it."""
    from redrive.engines.spark.metrics import SparkCollector
    from redrive.engines.worker.metrics import WorkerCollector

    collector = WorkerCollector if hasattr(run, "worker") else SparkCollector
    (found,) = [one for one in collector(run.handle).collect() if one.name == f"redrive_{name}"]
    by = "topic" if any("topic" in sample.labels for sample in found.samples) else "lane"
    return {sample.labels.get(by, ""): sample.value for sample in found.samples}


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A note; None for one that was cut off."""
    try:
        note: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return note


def wait_for_markers(admin: Admin, log: KafkaLog, places: list[TopicPartition]) -> None:
    """A transaction's marker is written a moment after its commit was promised."""
    admin.wait_until("the end of all transactions", lambda: not log.undecided(places))


FAILING_ONCE = """
    app = App(NAME, {options})

    @app.handler(topic("in"))
    def handle(record, ctx):
        time.sleep({seconds})
        if ctx.attempt == 1 and record.offset % 20 == 0:
            raise Retry("once")
        ctx.send(topic("out"), record.value)
"""
"""A copy that takes its time, and parks one record in twenty: to be disturbed."""

_HEAD = """
import json, os, time
from pathlib import Path
from redrive import App, Backoff, Bury, InPlace, Retry, RetryPolicy

NAME = {name!r}
NOTES = {notes!r}


def topic(name):
    return f"{{NAME}}.{{name}}"


def note(**told):
    # On a line of its own, whatever the last one was: a kill can cut a write off.
    line = "\\n" + json.dumps({{"at": time.time_ns() // 1_000_000, **told}}) + "\\n"
    file = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)

"""
