"""The story for real: sends it, watches it, and compares what came out with what was sent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event, Thread

import psycopg

from redrive.config import Settings
from redrive.demo import live_story
from redrive.demo.live_shop import app
from redrive.envelope import Envelope, parse
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.record import Record, TopicPartition, Write
from redrive.topics import OUTAGE, all_topic_names, apply, plan_topics, topic_names

OUTBOUND = "item.updated"
Pair = tuple[bytes | None, bytes | None]
"""Key and value."""
TOPICS = tuple(topic_names(app))


def prepare(settings: Settings, database: str) -> None:
    """Create the topics and the table."""
    port = KafkaTopics(settings)
    for _ in range(2):  # delay topics are modelled on their sources, once those exist
        plan = plan_topics(
            app, port.describe(all_topic_names(app)), outage=OUTAGE, create_sources=True
        )
        list(apply(plan, port))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table item (id text primary key, status text not null)")


class Sender:
    """Writes to the shop's topics, in a thread, second by second."""

    def __init__(self, settings: Settings) -> None:
        self._publisher = KafkaPublisher(settings)
        self._stop = Event()
        self._thread = Thread(target=self._send, daemon=True)
        self.sent: list[Write] = []
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether everything has been sent."""
        return not self._thread.is_alive()

    def open_shop(self) -> None:
        """Send the first records of all."""
        self._send_now(live_story.FIRST)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Send nothing more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._publisher.close()

    def _send_now(self, writes: list[Write]) -> None:
        self._publisher.publish(writes)
        self.sent += writes

    def _send(self) -> None:
        try:
            for number in range(live_story.SECONDS):
                self._send_now(list(live_story.second(number)))
                if self._stop.wait(1):
                    return
        except Exception as error:  # noqa: BLE001 -- whoever watches raises it
            self.error = error


@dataclass(frozen=True)
class Seen:
    """How far the story is."""

    healthy: int
    """Handled records that could be handled when they came."""
    early: int
    """Handled updates of those that came too early."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many records were written to each topic."""


@dataclass(frozen=True)
class Result:
    """What came out, compared with what was sent."""

    sent: int
    handled: int
    dead: list[tuple[Record, Envelope]]
    lost: list[Write]
    twice: int
    """Outbound records that exist more than once: at-least-once allows it."""


class Watcher:
    """Looks at the shop from outside: its table and its topics."""

    def __init__(self, settings: Settings, database: str) -> None:
        self._log = KafkaLog(settings, "redrive-demo")
        self._db = psycopg.connect(database, autocommit=True)
        self._places = [
            TopicPartition(topic, number)
            for topic in TOPICS
            for number in range(self._log.partitions(topic))
        ]

    def close(self) -> None:
        """Close both."""
        self._log.close()
        self._db.close()

    def look(self) -> Seen:
        """How far the story is now."""
        row = self._db.execute(
            "select count(*) + count(*) filter (where id like 'item-%' and status = 'SOLD'),"
            " count(*) filter (where id like 'lamp-%' and status = 'SOLD') from item"
        ).fetchone()
        healthy, early = row or (0, 0)
        counts = dict.fromkeys(TOPICS, 0)
        for place, (begin, end) in self._log.all_bounds(self._places).items():
            counts[place.topic] += end - begin
        return Seen(healthy, early, counts)

    def compare(self, sent: Collection[Write]) -> Result:
        """What became of each record that was sent."""
        created = {id_.encode() for (id_,) in self._db.execute("select id from item").fetchall()}
        outbound = [(record.key, record.value) for record in self._read(OUTBOUND)]
        updated, letters = set(outbound), list(self._read(app.dead_topic))
        dead = {(record.key, record.value) for record in letters}
        unseen = missing(sent, created, updated)
        return Result(
            sent=len(sent),
            handled=len(sent) - len(unseen),
            dead=[(record, parse(record.headers)) for record in letters],
            lost=[write for write in unseen if _pair(write) not in dead],
            twice=len(outbound) - len(updated),
        )

    def _read(self, topic: str) -> Iterator[Record]:
        for place in self._places:
            if place.topic == topic:
                yield from self._log.read(place, *self._log.bounds(place))


def missing(
    sent: Collection[Write], created: Collection[bytes], updated: Collection[Pair]
) -> list[Write]:
    """Records without effect: creates without an item, updates without an outbound record."""
    return [
        write
        for write in sent
        if (
            write.key not in created
            if write.topic == "item.create"
            else _pair(write) not in updated
        )
    ]


def _pair(write: Write) -> Pair:
    return write.key, write.value
