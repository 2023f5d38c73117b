"""Ranges: what one task is given to run, and how they are shared out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from redrive.parked_rules import ParkedRule
from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.record import TopicPartition


class House(NamedTuple):
    """In strict order: a source partition and its rooms, which one task handles."""

    claim: str
    """Of the plan by which the task handles it: a later plan makes another one."""
    places: tuple[tuple[TopicPartition, str], ...]
    """The source partition, then its rooms; each with the id of its topic."""

    @property
    def source(self) -> TopicPartition:
        """The source partition."""
        return self.places[0][0]


class Guarded(NamedTuple):
    """What is known of a handler's guard when a range is planned; nothing: all is well."""

    topic: str
    """The handler's source topic."""
    opened: int = 0
    """When its latest outage was seen, in milliseconds by the clock."""
    ended: int | None = None
    """When it was over; likewise."""
    ration: int = 0
    """During an outage, how many records may be called."""
    tried: frozenset[int] = frozenset()
    """The offsets of those that were probes before, and have failed."""
    own: frozenset[int] = frozenset()
    """The offsets of those that fail by themselves."""
    alone: bool = True
    """Whether no other task of the batch has records of the handler."""

    @property
    def is_shut(self) -> bool:
        """Whether there is an outage."""
        return self.opened > 0 and self.ended is None


class Range(NamedTuple):
    """Records of one topic-partition: from `start`, up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int
    delay: int | None = None
    """The topic's delay in milliseconds, if it is a delay topic."""
    metadata: str = ""
    """What was committed with `start`."""
    topic_id: str = ""
    """Of the topic for which it was planned: another of the same name may come after it."""
    search: Literal["", "alone", "proven"] = ""
    """alone: to see whether it kills its Python worker; proven: its record does, bury it."""
    rules: tuple[ParkedRule, ...] = ()
    """What operators have said about parked records when it was planned."""
    house: House | None = None
    """What it is part of, in strict order."""
    guarded: tuple[Guarded, ...] = ()
    """What is known of guards."""

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def unit(self) -> TopicPartition:
        """Ranges of one unit never run in two tasks at once."""
        return self.place if self.house is None else self.house.source

    @property
    def size(self) -> int:
        """At most so many records: offsets have gaps."""
        return self.end - self.start

    @property
    def done(self) -> list[done_beyond.Range]:
        """What was complete beyond `start` when it was planned."""
        return done_beyond.decode(Position(self.start, self.metadata))

    @property
    def is_one_alone(self) -> bool:
        """Whether it is tried alone and has one record: if its worker dies, that is a proof."""
        return self.search == "alone" and self.size == 1


def ahead(
    starts: Mapping[TopicPartition, Position],
    ends: Mapping[TopicPartition, int],
    delays: Mapping[str, int],
    most: int,
    topic_ids: Mapping[str, str] | None = None,
) -> list[Range]:
    """The ranges that are not empty, with at most so many records in all.

    Each partition gets an equal share of them; what a small one does not need, the others get.
    """
    sizes = {
        place: ends[place] - start.offset
        for place, start in starts.items()
        if ends[place] > start.offset
    }
    found: list[Range] = []
    for place, share in fair_shares(sizes, most).items():
        start, metadata = starts[place]
        if share:
            topic_id = (topic_ids or {}).get(place.topic, "")
            delay = delays.get(place.topic)
            found.append(Range(*place, start, start + share, delay, metadata, topic_id))
    return found


def fair_shares(sizes: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Share out a number: nobody gets more than it needs, and the rest is for those who do."""
    shares: dict[TopicPartition, int] = {}
    left, waiting = most, len(sizes)
    for place, size in sorted(sizes.items(), key=lambda item: item[1]):
        shares[place] = min(size, -(-left // waiting))
        left -= shares[place]
        waiting -= 1
    return shares


def pack(ranges: Sequence[Range], tasks: int) -> list[list[Range]]:
    """Share ranges out among at most so many tasks, the largest first, each to the least loaded.

    Those of one unit are shared out together.
    """
    units: dict[TopicPartition, list[Range]] = {}
    for each in ranges:
        units.setdefault(each.unit, []).append(each)
    packed: list[list[Range]] = [[] for _ in range(min(tasks, len(units)))]
    loads = [0] * len(packed)
    for unit in sorted(units.values(), key=size_of, reverse=True):
        lightest = loads.index(min(loads))
        packed[lightest] += unit
        loads[lightest] += size_of(unit)
    return packed


def size_of(ranges: Sequence[Range]) -> int:
    """How many records they have together, at most."""
    return sum(each.size for each in ranges)
