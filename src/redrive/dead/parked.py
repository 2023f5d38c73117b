"""Parked records: what waits in an app's delay topics, by delay and by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redrive.dead.dialects import number, text
from redrive.envelope import header_of
from redrive.record import Record, TopicPartition
from redrive.tuning import DEAD_GROUPS

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Log, Progress

_GROUP = header_of("error_group")
_ERROR = header_of("error_type")
_DUE = header_of("due")


@dataclass
class Parked:
    """What waits in one delay topic."""

    topic: str
    delay: int
    count: int = 0
    next_due: int | None = None
    """When the first of them is due, in milliseconds since 1970."""
    groups: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By the id of their group and the class of their error."""

    def add(self, record: Record) -> None:
        """Count one record."""
        self.count += 1
        due = max(number(record.header(_DUE) or b"") or 0, (record.timestamp or 0) + self.delay)
        self.next_due = due if self.next_due is None else min(self.next_due, due)
        name = text(record.header(_GROUP) or b"") or "-", text(record.header(_ERROR) or b"") or "-"
        self.groups[name if len(self.groups) < DEAD_GROUPS else ("(others)", "-")] += 1

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "delay": self.delay,
            "count": self.count,
            "next_due": self.next_due,
            "groups": [
                {"group": group, "error_type": error, "count": count}
                for (group, error), count in self.groups.most_common()
            ],
        }


def parked(app: App, log: Log, progress: Progress) -> Iterator[Parked]:
    """What the app has parked and not handled yet, shortest delay first."""
    topics = app.waiting_topics(log.names())
    for topic, delay in sorted(topics.items(), key=lambda each: each[1]):
        found = Parked(topic, delay)
        places = [TopicPartition(topic, partition) for partition in range(log.partitions(topic))]
        committed = progress.committed(places)
        for place in places:
            first, end = log.bounds(place)
            start = max(first, committed[place].offset) if place in committed else first
            for batch in log.batches(place, start, end):
                for record in batch:
                    found.add(record)
        yield found
