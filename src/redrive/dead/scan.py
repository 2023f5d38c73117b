"""Scan: all letters of a dead topic that fit a filter, as a stream; memory stays flat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redrive.dead.dialects import Dialect
from redrive.dead.filters import Filter, Place
from redrive.dead.letter import Letter
from redrive.dead.showing import See, Seen
from redrive.dead.states import Mark, Marks, State, state_of
from redrive.kafka.errors import MissingTopicError, OffsetsGoneError
from redrive.numbers import counted
from redrive.ports import Log
from redrive.record import Record, TopicPartition
from redrive.tuning import DEAD_NAMES

Bounds = Mapping[int, tuple[int, int]]
"""By partition: the first offset, and the one after the last."""


class Planned(NamedTuple):
    """The letters that somebody has seen, and wants something to be done about."""

    topic_id: str
    """Of the dead topic: in one that was recreated since, their offsets mean others."""
    bounds: Bounds | None = None
    """The offsets that a dry run has looked at; None: there was none."""


class Found(NamedTuple):
    """A letter that fits, and what was done about it before."""

    letter: Letter
    state: State
    mark: Mark | None


@dataclass
class Scanned:
    """How far a scan came."""

    topic: str
    scanned: int = 0
    """Records that were read."""
    matched: int = 0
    """Those of them that fit."""
    complete: bool = False
    """Whether all letters were looked at that were there when the scan began."""
    deleted: int = 0
    """Offsets that retention deleted before they were read."""
    bounds: dict[int, tuple[int, int]] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    """The only letters and partitions that were looked at; empty: the whole topic was."""

    @property
    def looked_at(self) -> int:
        """Offsets that were looked at, as far as that is known: the log may have gaps."""
        return self.scanned + self.deleted

    @property
    def left(self) -> int:
        """Offsets that were not looked at: no fewer than letters."""
        return sum(end - start for start, end in self.bounds.values()) - self.looked_at

    def add(self, part: Mapping[str, Any]) -> None:
        """Count what another process has scanned, as its `as_data` says."""
        self.scanned += part["scanned"]
        self.matched += part["matched"]
        self.deleted += part["deleted"]
        self.complete = self.complete and part["complete"]

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "scanned": self.scanned,
            "matched": self.matched,
            "complete": self.complete,
            "deleted": self.deleted,
            "places": [*self.places],
        }

    def __str__(self) -> str:
        lost = f"; {self.deleted:,} deleted by retention meanwhile" if self.deleted else ""
        if not self.complete:
            read = f"{self.scanned:,} scanned in {self.topic}, more not read"
            return f"{counted(self.matched, 'letter matches', 'letters match')}; {read}{lost}"
        scanned = f"{counted(self.scanned, 'letter')} scanned in {self.topic}"
        return f"{self.matched:,} of {scanned} ({self._looked_at}){lost}"

    @property
    def _looked_at(self) -> str:
        if not self.places:
            return "all of them"
        rest = len(self.places) - DEAD_NAMES
        more = f" and {counted(rest, 'more place')}" if rest > 0 else ""
        return f"only at {', '.join(self.places[:DEAD_NAMES])}{more}"


class StoppedReadingError(Exception):
    """Whoever reads was asked to stop."""


class Scan:
    """One pass over a dead topic. Ends are taken at its start: what dies later is not in it."""

    def __init__(
        self,
        log: Log,
        topic: str,
        filter: Filter | None = None,  # noqa: A002 -- the word for it
        *,
        marks: Marks | None = None,
        dialect: Dialect | None = None,
        bounds: Bounds | None = None,
        see: See = Seen,
        stopping: Callable[[], object] = lambda: False,
    ) -> None:
        """With `bounds`, only these ranges are read; by default, all that is there now.

        `see`: what may be seen of a letter, for filters that compare that; `stopping`: whether to
        stop with StoppedReadingError.
        """
        self._see = see
        self._stopping = stopping
        self._log = log
        self._filter = filter or Filter()
        self._marks = marks or Marks()
        self._dialect = dialect
        self.result = Scanned(
            topic,
            bounds=dict(bounds_of(log, topic) if bounds is None else bounds),
            places=self._filter.places,
        )

    def __iter__(self) -> Iterator[Found]:
        for partition, (start, end) in sorted(self.result.bounds.items()):
            yield from self.partition(partition, start, end)
        self.result.complete = True

    def partition(self, partition: int, start: int, end: int) -> Iterator[Found]:
        """The letters of a range of one partition, in their order."""
        topic, result = self.result.topic, self.result
        if not self._filter.fits_partition(topic, partition):
            return
        start, end = self._filter.bounds(topic, partition, start, end)
        place = TopicPartition(topic, partition)
        for record in read_range(self._log, place, start, end, self._lost, stopping=self._stopping):
            result.scanned += 1
            letter = Letter(record, self._dialect)
            mark = self._marks.get(partition, record.offset)
            state = state_of(letter, mark)
            if self._filter.fits(letter, state, mark, self._see):
                result.matched += 1
                yield Found(letter, state, mark)

    def _lost(self, offsets: int) -> None:
        self.result.deleted += offsets


def read_range(
    log: Log,
    place: TopicPartition,
    start: int,
    end: int,
    lost: Callable[[int], None],
    *,
    stopping: Callable[[], object] = lambda: False,
) -> Iterator[Record]:
    """The records of a range; what retention deletes before it is read is counted by `lost`.

    StoppedReadingError, if it is to stop: there may be millions that nobody is told of.
    """
    while start < end:
        try:
            for batch in log.batches(place, start, end):
                if stopping():
                    raise StoppedReadingError
                yield from batch
                start = batch[-1].offset + 1 if batch else start
        except OffsetsGoneError:
            first = min(log.bounds(place)[0], end)
            if first <= start:
                raise
            lost(first - start)
            start = first
        else:
            return


def existing(log: Log, topics: Iterable[str]) -> dict[str, int]:
    """Those of the topics that exist, with their partitions."""
    found = {topic: log.partitions(topic) for topic in topics}
    return {topic: partitions for topic, partitions in found.items() if partitions}


def bounds_of(log: Log, topic: str) -> dict[int, tuple[int, int]]:
    """Where each partition of a dead topic begins and ends now."""
    partitions = log.partitions(topic)
    if not partitions:
        raise MissingTopicError(topic)
    return {number: log.bounds(TopicPartition(topic, number)) for number in range(partitions)}


def of_plan(now: Bounds, planned: Bounds) -> dict[int, tuple[int, int]]:
    """The bounds of a plan, with what was deleted since: whoever reads them counts that."""
    found = {}
    for partition, (start, end) in now.items():
        first, last = planned.get(partition, (start, start))
        first = min(first, start)
        found[partition] = (first, max(first, min(end, last)))
    return found


def with_offset(bounds: Bounds, place: Place) -> dict[int, tuple[int, int]]:
    """The same with the offset that somebody has named, if its letter is deleted by now."""
    found = dict(bounds)
    if place.partition in found and place.offset is not None:
        start, end = found[place.partition]
        found[place.partition] = (min(start, place.offset), end)
    return found
