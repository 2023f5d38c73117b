"""An outbox, relays that publish it, and what arrived in Kafka."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient

from redrive.config import Settings, load_settings
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.ledger.outbox import Outbound, Outbox
from redrive.ledger.relay import Relay
from redrive.local.waiting import wait_until
from redrive.record import Record, TopicPartition, Write


class Post:
    """One app's outbox and its relays."""

    def __init__(self, bootstrap: str, database: str, app: str) -> None:
        self.app = app
        self.database = database
        self.settings: Settings = load_settings({"bootstrap": bootstrap, "database": database})
        self.outbox = Outbox(app)
        self.admin = Admin(self.settings)
        self._log = KafkaLog(self.settings, "reader", admin=self.admin)

    def send(self, *sends: Outbound | Write) -> None:
        """Insert them in a transaction of their own."""
        with psycopg.connect(self.database) as connection:
            self.insert(connection, *sends)

    def insert(self, connection: psycopg.Connection, *sends: Outbound | Write) -> None:
        self.outbox.insert(
            connection, [one if isinstance(one, Outbound) else Outbound(one) for one in sends]
        )

    def waiting(self) -> int:
        """How many rows are in the outbox."""
        with psycopg.connect(self.database) as connection:
            row = connection.execute("select count(*) from redrive.outbox").fetchone()
        return row[0]

    def drain(self) -> Relay:
        """Publish what is there, in this thread."""
        relay = Relay(self.app, self.settings, stopping=lambda: False)
        relay.run(until_empty=True)
        return relay

    def arrived(self, topic: str) -> list[Record]:
        """What is in a topic, partition by partition."""
        found: list[Record] = []
        for number in range(self._log.partitions(topic)):
            place = TopicPartition(topic, number)
            found += self._log.read(place, *self._log.bounds(place))
        return found

    def count(self, topic: str) -> int:
        """How many messages are in a topic."""
        places = [TopicPartition(topic, n) for n in range(self._log.partitions(topic))]
        bounds = map(self._log.bounds, places)
        return sum(end - begin for begin, end in bounds)


class InThread:
    """A relay that runs until the block ends."""

    def __init__(self, post: Post, **options: float) -> None:
        self._stop = threading.Event()
        self.relay = Relay(post.app, post.settings, stopping=self._stop.is_set, **options)
        self._thread = threading.Thread(target=self.relay.run, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self.relay

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


class Process:
    """`redrive relay` as a process of its own."""

    def __init__(self, post: Post, folder: Path, *options: str) -> None:
        module = f"shop_{post.app.replace('-', '_').replace('.', '_')}"
        (folder / f"{module}.py").write_text(
            f"from redrive import App\napp = App({post.app!r})\n"
            f"@app.handler('{post.app}.in')\ndef handle(record, ctx): ...\n"
        )
        self.log = folder / f"relay-{id(self)}.log"
        with self.log.open("wb") as out:
            where = ["--bootstrap", post.settings.servers(), "--database", post.database]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redrive", "relay", f"{module}:app", *options, *where],
                cwd=folder,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        return self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(what: str, fulfilled: Callable[[], bool], seconds: float = 60) -> None:
    # Each look has a connection of its own.
    assert wait_until(fulfilled, seconds, pause=0.1), f"not within {seconds:.0f} s: {what}"


def grow_limit(bootstrap: str, topic: str, size: int) -> None:
    """Let a topic take messages of that size."""
    from redrive.kafka.rdkafka import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    client = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result()
