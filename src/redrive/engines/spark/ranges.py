"""Ranges: what one task is given to run, and how they are shared out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from redrive.engines.spark import probing
from redrive.ports import Position
from redrive.record import TopicPartition

Lane = Literal["main", "retry"]
From = Literal["earliest", "latest"]


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

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """At most so many records: offsets have gaps."""
        return self.end - self.start


class View(NamedTuple):
    """One partition, as it was seen at one moment."""

    begin: int
    """The first offset that can be read."""
    end: int
    """The offset after the last that can be read: open transactions are not passed."""
    committed: Position | None


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that are gone although they were not complete."""

    place: TopicPartition
    committed: int
    begin: int
    end: int

    def __str__(self) -> str:
        if self.committed > self.end:
            return (
                f"{self.place}: progress is at offset {self.committed}, but the log ends at"
                f" {self.end}: the topic was made anew, or a broker lost its end"
            )
        return (
            f"{self.place}: progress is at offset {self.committed}, but the log begins at"
            f" {self.begin}: up to {self.begin - self.committed} records were deleted unread"
        )


def begin_at(
    views: Mapping[TopicPartition, View], start_from: From, made_anew: Collection[str] = ()
) -> dict[TopicPartition, int]:
    """Where partitions begin that have no progress yet.

    A partition that was added to a topic with progress holds only records that came later, and so
    do topics that were made anew while the app ran: they begin at their beginning, whatever was
    asked for the first start.
    """
    with_progress = {place.topic for place, view in views.items() if view.committed is not None}
    known = with_progress.union(made_anew)
    return {
        place: view.begin if start_from == "earliest" or place.topic in known else view.end
        for place, view in views.items()
        if view.committed is None
    }


def lost(views: Mapping[TopicPartition, View]) -> list[Lost]:
    """Which partitions cannot go on where they were."""
    return [
        Lost(place, view.committed.offset, view.begin, view.end)
        for place, view in views.items()
        if view.committed is not None and not view.begin <= view.committed.offset <= view.end
    ]


def ahead(
    starts: Mapping[TopicPartition, Position],
    ends: Mapping[TopicPartition, int],
    delays: Mapping[str, int],
    most: int,
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
            found.append(Range(*place, start, start + share, delays.get(place.topic), metadata))
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

    A range that is probed has a task of its own: nobody else shall be there when its worker dies.
    """
    probed = [each for each in ranges if probing.read(each.metadata) is not None]
    others = [each for each in ranges if each not in probed]
    packed: list[list[Range]] = [[] for _ in range(min(tasks, len(others)))]
    loads = [0] * len(packed)
    for each in sorted(others, key=lambda one: one.size, reverse=True):
        lightest = loads.index(min(loads))
        packed[lightest].append(each)
        loads[lightest] += each.size
    return [*([each] for each in probed), *packed]
