"""What the worker's benchmarks stand on: a stack of their own, and topics."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redrive.config import Settings, load_settings
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.local import stack
from redrive.local.jars import fetch
from redrive.record import Record, TopicPartition, Write

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@dataclass
class World:
    """Kafka, and what was written to it."""

    settings: Settings
    topics: KafkaTopics
    log: KafkaLog
    publisher: KafkaPublisher
    folder: Path
    made: int = 0

    @property
    def bootstrap(self) -> str:
        return self.settings.servers()

    def new(self, what: str) -> str:
        """A name that was not used yet."""
        self.made += 1
        return f"bench-{what}-{self.made}"

    def topic(self, what: str, partitions: int = 1) -> str:
        """A new topic whose records bear the time at which the broker took them."""
        name = self.new(what)
        self.topics.create(name, partitions, APPEND_TIME)
        return name

    def own_topics(self, app: str, *delays: str, partitions: int = 2) -> None:
        """The topics of an app itself."""
        for name in (*(f"{app}.retry.{delay}" for delay in delays), f"{app}.dead"):
            self.topics.create(name, partitions, APPEND_TIME)

    def write(self, topic: str, pairs: list[tuple[bytes, bytes]]) -> None:
        self.publisher.publish([Write(topic, key, value) for key, value in pairs])

    def read(self, topic: str) -> Iterator[Record]:
        for number in range(self.log.partitions(topic)):
            place = TopicPartition(topic, number)
            yield from self.log.read(place, *self.log.bounds(place))


@contextmanager
def world() -> Iterator[World]:
    """Start everything, and end it."""
    os.environ.setdefault("REDRIVE_JARS", str(fetch("kafka")[0].parent.parent))
    with tempfile.TemporaryDirectory() as folder, stack(home=Path(folder) / "stack") as running:
        settings = load_settings({"bootstrap": running.bootstrap})
        yield World(
            settings,
            KafkaTopics(settings),
            KafkaLog(settings, "bench"),
            KafkaPublisher(settings),
            Path(folder),
        )
