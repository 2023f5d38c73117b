"""Parked records: what waits in an app's delay topics, by delay and by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from redrive.dead.dialects import number, text
from redrive.dead.letter import Letter
from redrive.dead.scan import read_range
from redrive.dead.showing import Seen
from redrive.envelope import header_of
from redrive.parked_rules import NOTHING, ParkedRule, Said, said
from redrive.ports import Position
from redrive.processing.progress.done_beyond import decode, includes
from redrive.record import Record, TopicPartition, partitions_of
from redrive.tuning import DEAD_GROUPS

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Log, Progress

_GROUP = header_of("error_group")
_ERROR = header_of("error_type")
_DUE = header_of("due")
_ID = header_of("id")
_OPERATION = header_of("operation")
_UNHANDLED = header_of("unhandled_since")
REPLAYED: Final = "(replayed)"
"""Stands for the group of a record that was replayed and has not run since."""
WAITS: Final = "(no handler)"
"""Stands for the group of a record that waits for a version with its handler."""
NO_GROUPS: Final = (REPLAYED, WAITS)


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
    held: int = 0
    """How many of them do not run when they are due: rules hold them."""
    to_run: int = 0
    """How many of them are to run now, and have not yet."""
    whole: bool = True
    """Whether all were counted."""

    def add(self, record: Record, rules: Said = NOTHING, masked: Sequence[str] = ()) -> None:
        """Count one record, with what rules say about it; without what masked fields hold."""
        self.count += 1
        self.held += rules.order == "hold"
        self.to_run += rules.order == "run-now"
        due = max(number(record.header(_DUE) or b"") or 0, (record.timestamp or 0) + self.delay)
        self.next_due = due if self.next_due is None else min(self.next_due, due)
        group, error = _cause(record)
        # Of errors only their classes are told: what JSON says without a decoder is enough.
        name = group, Seen(Letter(record), masked=masked).without(error) or ""
        known = name in self.groups or len(self.groups) < DEAD_GROUPS
        self.groups[name if known else ("(others)", "-")] += 1

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "delay": self.delay,
            "count": self.count,
            "next_due": self.next_due,
            "held": self.held,
            "to_run": self.to_run,
            "groups": [
                {"group": group, "error_type": error, "count": count}
                for (group, error), count in self.groups.most_common()
            ],
        }


def parked(
    app: App,
    log: Log,
    progress: Progress,
    rules: Sequence[ParkedRule] = (),
    most: int | None = None,
) -> Iterator[Parked]:
    """What the app has parked and not handled yet, shortest delay first.

    Of each topic, no more than `most` records are read.
    """
    for topic, delay in delay_topics(app, log).items():
        found, topic_id = Parked(topic, delay), log.topic_id(topic)
        for record in ahead([topic], log, progress):
            if found.count == most:
                found.whole = False
                break
            found.add(record, what_is_said(rules, record, topic_id), app.masked)
        yield found


def delay_topics(app: App, log: Log) -> dict[str, int]:
    """The app's delay topics that there are, with their delays, shortest first."""
    topics = app.waiting_topics(log.names())
    return dict(sorted(topics.items(), key=lambda each: each[1]))


def ahead(topics: Collection[str], log: Log, progress: Progress) -> Iterator[Record]:
    """The records of these topics that the app has not handled yet."""
    places = partitions_of({topic: log.partitions(topic) for topic in topics})
    committed = progress.committed(places)
    for place in places:
        first, end = log.bounds(place)
        position = committed.get(place, Position(first))
        done = decode(position)
        for record in read_range(log, place, max(first, position.offset), end, _left_alone):
            if not includes(done, record.offset):
                yield record


def _left_alone(_offsets: int) -> None:
    """What retention has deleted meanwhile waits no longer."""


def what_is_said(rules: Sequence[ParkedRule], record: Record, topic_id: str) -> Said:
    """What rules say about a record of a delay topic."""
    if not rules:
        return NOTHING
    place = TopicPartition(record.topic, record.partition)
    group, record_id = group_of(record), id_of(record)
    return said(rules, place, topic_id, record.offset, group=group, record_id=record_id)


def _cause(record: Record) -> tuple[str, str]:
    """The group and the error of a record; one that was replayed has not failed since."""
    group, error = group_of(record), text(record.header(_ERROR) or b"")
    operation = text(record.header(_OPERATION) or b"")
    waits = WAITS if record.header(_UNHANDLED) is not None else ""
    if group is None and error is None and operation is not None:
        return waits or REPLAYED, operation
    return waits or group or "-", error or "-"


def group_of(record: Record) -> str | None:
    """The id of the cause for which a record was parked."""
    return text(record.header(_GROUP) or b"")


def id_of(record: Record) -> str | None:
    """The id of a parked record."""
    return text(record.header(_ID) or b"")
