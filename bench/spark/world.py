"""What the Spark benchmarks stand on: a stack of their own, topics, apps made on the fly."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from pyspark.sql import SparkSession

from redrive.clock import WallClock
from redrive.config import Settings, load_settings
from redrive.engines.spark.spark_session import session
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.local import stack
from redrive.local.jars import fetch
from redrive.record import Record, TopicPartition, Write

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
PARTITIONS = 4


@dataclass
class World:
    """Kafka, Spark, and a folder for the modules of apps."""

    spark: SparkSession
    settings: Settings
    topics: KafkaTopics
    log: KafkaLog
    publisher: KafkaPublisher
    folder: Path

    def topic(self, name: str, partitions: int = PARTITIONS) -> str:
        """A new topic whose records bear the time at which the broker took them."""
        self.topics.create(name, partitions, APPEND_TIME)
        return name

    def app(self, name: str, code: str) -> str:
        """A module with an app of that name, and the topics it needs; gives what to start."""
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(code)
        app = __import__(module).app
        for topic in (*app.delay_topics, app.dead_topic):
            self.topics.create(topic, 2, APPEND_TIME)
        return f"{module}:app"

    def ends(self, topic: str) -> int:
        """How many records a topic holds."""
        places = self.places(topic)
        return sum(end - begin for begin, end in self.log.all_bounds(places).values())

    def all_ends(self, topic: str) -> dict[TopicPartition, int]:
        """Where each partition of a topic ends."""
        bounds = self.log.all_bounds(self.places(topic))
        return {place: end for place, (_, end) in bounds.items()}

    def arrival(self, place: TopicPartition, offset: int) -> float:
        """When the broker took the record at an offset, or the next one after it."""
        # A few, as offsets may be those of transaction markers.
        _, end = self.log.bounds(place)
        found = self.log.read(place, offset, min(offset + 10, end))
        return min(float(record.timestamp or 0) for record in found)

    def places(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, n) for n in range(self.log.partitions(topic))]

    def now(self) -> int:
        """The time, in milliseconds, as the broker on this machine has it."""
        return WallClock().now()

    def last_arrival(self, topic: str) -> float:
        """When the broker took the last record of a topic."""
        times: list[float] = []
        for place, (begin, end) in self.log.all_bounds(self.places(topic)).items():
            # A few, as the very last offsets may be those of transaction markers.
            last = self.log.read(place, max(begin, end - 10), end)
            times += [float(record.timestamp or 0) for record in last]
        return max(times)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until something holds."""
        end, pause = monotonic() + seconds, threading.Event()
        while not condition():
            if monotonic() >= end:
                raise SystemExit(f"the pipeline did not come that far within {seconds:.0f} s")
            pause.wait(0.05)

    def read(self, topic: str) -> Iterator[Record]:
        for place in self.places(topic):
            yield from self.log.read(place, *self.log.bounds(place))


@contextmanager
def world(master: str = "local[8, 4]") -> Iterator[World]:
    """Start everything, and end it."""
    connector = fetch("spark-kafka")
    jars = ",".join(map(str, connector))
    # The stack has a folder of its own, but not its own copy of Kafka's jars.
    os.environ.setdefault("REDRIVE_JARS", str(connector[0].parent.parent))
    with tempfile.TemporaryDirectory() as folder, stack(home=Path(folder) / "stack") as running:
        sys.path.insert(0, folder)
        settings = load_settings({"bootstrap": running.bootstrap})
        spark = session("bench", master, {"spark.jars": jars, "spark.ui.enabled": "false"})
        try:
            yield World(
                spark,
                settings,
                KafkaTopics(settings),
                KafkaLog(settings, "bench"),
                KafkaPublisher(settings),
                Path(folder),
            )
        finally:
            spark.stop()


def at_rate(
    publish: Callable[[Sequence[Write]], None], writes: Sequence[Write], *, rate: int
) -> None:
    """Write at a steady rate, in steps of 20 ms."""
    tick, start = threading.Event(), monotonic()
    sent = 0
    while sent < len(writes):
        due = min(int((monotonic() - start) * rate), len(writes))
        publish(writes[sent:due])
        sent = due
        tick.wait(0.02)


class Figure(NamedTuple):
    """One figure, and what it has to keep, if anything."""

    name: str
    value: str
    limit: str = ""
    kept: bool = True


def tell(figures: Sequence[Figure]) -> bool:
    """Print figures with their limits; gives whether all of them are kept."""
    for name, value, limit, kept in figures:
        verdict = f"  limit: {limit}, {'kept' if kept else 'MISSED'}" if limit else ""
        print(f"  {name:20} {value:>36}{verdict}")
    return all(figure.kept for figure in figures)


def rate_figures(rates: Mapping[str, float], limits: Mapping[str, float], of: str) -> list[Figure]:
    """Rates as shares of the one called "bare"."""
    figures = []
    for name, rate in rates.items():
        ratio, limit = rate / rates["bare"], limits.get(name)
        value = f"{rate:,.0f} records/s, {ratio:.2f} of {of}"
        if limit is None:
            figures.append(Figure(name, value))
        else:
            figures.append(Figure(name, value, f"at least {limit}", ratio >= limit))
    return figures


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
