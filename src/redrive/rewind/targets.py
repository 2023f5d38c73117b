"""Where progress goes back to, partition by partition, and what is refused: pure but for asking.

Progress only ever goes back: going forwards would skip records that nobody has handled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from redrive.dead.filters import Place
from redrive.dead.showing import time_text
from redrive.engines.offset_reset import is_of_another
from redrive.errors import ConfigurationError, NotReadyError
from redrive.numbers import counted
from redrive.ports import Log, Position
from redrive.processing.progress.done_beyond import (
    METADATA_LIMIT,
    Range,
    decode,
    includes,
    still_at,
)
from redrive.processing.progress.notes import MOVED, ROOM, noted
from redrive.record import TopicPartition, partitions_of

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Progress


def time_of(written: str) -> int:
    """A time as people write it, in milliseconds since 1970: without a zone, it is in UTC."""
    try:
        time = datetime.fromisoformat(written)
    except ValueError:
        raise ConfigurationError(
            f"{written!r} is not a time: write 2026-11-18T03:00, or with its zone"
            " 2026-11-18T03:00+01:00"
        ) from None
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)


class TimedLog(Log, Protocol):
    """A log that can be asked by time."""

    def appended_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """For each partition, offset and time of the first record at or after the time, if any."""
        ...


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where to go back to: a time, or offsets."""

    time: int | None = None
    """In milliseconds since 1970."""
    offsets: tuple[str, ...] = ()
    """Such as `orders[0]@17`."""
    topics: tuple[str, ...] = ()
    """With a time: only these source topics; by default all of the app's."""

    def __post_init__(self) -> None:
        if (self.time is None) == (not self.offsets):
            raise ConfigurationError("say where to go back to: give --to-time or --to-offset")
        if self.offsets and self.topics:
            raise ConfigurationError(
                "--topic is for --to-time: --to-offset names topic and partition itself"
            )


class Span(NamedTuple):
    """One partition, and which of its records are handled again."""

    place: TopicPartition
    start: int
    """Where progress goes back to."""
    position: Position
    """The progress that is committed now."""

    @property
    def beyond(self) -> list[Range]:
        """What is complete beyond the committed offset."""
        return decode(self.position)

    @property
    def end(self) -> int:
        """The offset after the last record that was handled."""
        return max([self.position.offset, *(end for _, end in self.beyond)])

    @property
    def rewound(self) -> Position:
        """The progress afterwards: what is complete before the start stays so."""
        done = [(first, min(end, self.start)) for first, end in self.beyond if first < self.start]
        return still_at(min(self.start, self.position.offset), done, METADATA_LIMIT - ROOM)


class Covered:
    """Tells which offsets of a span were handled; made once, as it is asked for each record."""

    def __init__(self, span: Span) -> None:
        self._start, self._before, self._beyond = span.start, span.position.offset, span.beyond

    def __call__(self, offset: int) -> bool:
        """Whether the record at that offset was handled, and is to be handled again."""
        if offset < self._start:
            return False
        return offset < self._before or includes(self._beyond, offset)


class Targets(NamedTuple):
    """What is to go back, and what should be known of it."""

    spans: list[Span]
    notes: list[str]


def find(app: App, where: Where, log: TimedLog, progress: Progress) -> Targets:
    """Where each partition goes back to; an error says what cannot be."""
    _check_topics(app, [*where.topics, *(Place.of(each).topic for each in where.offsets)])
    topics = where.topics or tuple(app.handlers)
    counts = {topic: log.partitions(topic) for topic in topics}
    ids = {topic: log.topic_id(topic) for topic, count in counts.items() if count}
    found = progress.committed(partitions_of(counts))
    _check_name(app, found.values())
    # What was committed for a topic that was deleted since says nothing about its successor.
    committed = {p: at for p, at in found.items() if not is_of_another(at, ids[p.topic])}
    if not committed:
        raise NotReadyError(
            f'the app "{app.name}" has no progress in {", ".join(topics)}: it has handled nothing'
            " there that could be handled again"
        )
    if where.time is None:
        return Targets(_by_offset(app, where.offsets, log, counts, committed), [])
    return _by_time(app, where.time, log, committed)


def _check_topics(app: App, topics: Collection[str]) -> None:
    problems = []
    for topic in dict.fromkeys(topics):
        if topic in app.handlers:
            continue
        what = "a delay topic" if app.delay_of(topic) is not None else "no source topic"
        problems.append(
            f'{topic} is {what} of the app "{app.name}": only what comes from'
            f" {', '.join(app.handlers)} can be handled again"
        )
    if problems:
        raise ConfigurationError(problems)


def _check_name(app: App, found: Collection[Position]) -> None:
    later = {noted(each, MOVED) for each in found} - {""}
    if later:
        name = min(later)
        raise NotReadyError(
            f'the app "{app.name}" was renamed to "{name}", which has continued from here: rewind'
            f' "{name}"'
        )


def _by_time(
    app: App, time: int, log: TimedLog, committed: Mapping[TopicPartition, Position]
) -> Targets:
    spans, notes = [], []
    for place, found in log.appended_since(dict.fromkeys(committed, time)).items():
        if found is None:
            continue  # all of its records are older
        offset, at = found
        first, _ = log.bounds(place)
        span = Span(place, max(offset, first), committed[place])
        # An app that has not come so far yet handles what is there anyway.
        if span.start >= span.end:
            continue
        spans.append(span)
        if span.start == first > 0:
            notes.append(
                f"{place} begins with offset {first:,}, of {time_text(at)}: what was there before"
                " is deleted"
            )
    if not spans:
        raise ConfigurationError(
            f'the app "{app.name}" has handled no record of {time_text(time)} or later: there is'
            " nothing to handle again"
        )
    return Targets(sorted(spans), notes)


def _by_offset(
    app: App,
    offsets: Collection[str],
    log: Log,
    counts: Mapping[str, int],
    committed: Mapping[TopicPartition, Position],
) -> list[Span]:
    spans: dict[TopicPartition, Span] = {}
    problems: list[str] = []
    for written in offsets:
        topic, partition, offset = Place.of(written)
        place = TopicPartition(topic, partition)
        if place in spans:
            problems.append(f"{place} is named twice: give one offset for each partition")
        elif partition >= counts[topic]:
            problems.append(
                f"{place} does not exist: {topic} has {counted(counts[topic], 'partition')}"
            )
        elif offset is None:
            problems.append(f"{written} is a partition: write {written}@offset")
        elif place not in committed:
            problems.append(
                f'the app "{app.name}" has no progress in {place}: it has handled nothing there'
            )
        else:
            spans[place] = span = Span(place, offset, committed[place])
            problems += _wrong(app, span, log)
    if problems:
        raise ConfigurationError(problems)
    return sorted(spans.values())


def _wrong(app: App, span: Span, log: Log) -> Iterator[str]:
    place, start, at = span.place, span.start, span.position.offset
    first, _ = log.bounds(place)
    if start > at:
        yield (
            f'{place}@{start} is ahead of the app "{app.name}", which is at {at}: that would skip'
            f" {start - at:,} offsets that nobody has handled; rewind only goes back, and a record"
            " that need not be handled is for its handler to pass over"
        )
    elif start < first:
        yield (
            f"{place}@{start} is deleted by retention: the first offset of {place} is {first}, so"
            f" write {place}@{first} for all that is left"
        )
    elif start >= span.end:
        yield f'the app "{app.name}" is at {place}@{at} now: there is nothing to handle again'
