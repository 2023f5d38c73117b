"""Filters: which letters are meant. Pure, and the same in commands, jobs and on Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple

from redrive.dead.letter import Letter
from redrive.dead.masking import MASK
from redrive.dead.showing import See, Seen
from redrive.dead.states import STATES, Mark, State
from redrive.durations import text
from redrive.errors import ConfigurationError
from redrive.record import Record

_PLACE: Final = re.compile(r"([A-Za-z0-9._-]+)\[([0-9]{1,19})\](?:@([0-9]{1,19}))?")


class Place(NamedTuple):
    """Where a record is, or a whole partition."""

    topic: str
    partition: int
    offset: int | None

    @classmethod
    def of(cls, written: str) -> Place:
        """What `shop.dead[0]@17` and `shop.dead[0]` name."""
        found = _PLACE.fullmatch(written)
        if found is None:
            raise ConfigurationError(
                f"{written!r} is not a place: write topic[partition]@offset, such as"
                " shop.dead[0]@17"
            )
        offset = None if found[3] is None else int(found[3])
        return cls(found[1], int(found[2]), offset)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which letters are meant: those that fit all that is given. Several of one kind: any."""

    places: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Ids, or how they begin."""
    reasons: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Classes, with or without their module."""
    text: str | None = None
    """In the error's message or its class, whatever the case."""
    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    """`name=value`, or a name: of the record's own headers."""
    origins: tuple[str, ...] = ()
    """Where letters come from: topics, partitions (`orders[0]`) or records (`orders[0]@4`)."""
    since: int | None = None
    """Died at or after this time, in milliseconds since 1970."""
    until: int | None = None
    """Died before this time."""
    attempts: int | None = None
    """At least this many."""
    states: tuple[State, ...] = ()
    operations: tuple[str, ...] = ()
    """Ids of operations that did something about them."""
    as_seen: bool = False
    """Whether what is masked is compared as it is shown, so that no search finds out what it is.

    Pages ask for that. Commands do not: whoever runs one reads the same letters from Kafka with the
    same rights, and finds a customer by the raw key. It is part of the filter, and so of a job:
    whoever resumes the job means the same letters."""

    def __post_init__(self) -> None:
        unknown = [each for each in self.states if each not in STATES]
        if unknown:
            raise ConfigurationError(
                f"there is no state {unknown[0]!r}; it can be {', '.join(STATES)}"
            )
        for each in (*self.places, *filter(_is_place, self.origins)):
            Place.of(each)

    def fits(self, letter: Letter, state: State, mark: Mark | None = None, see: See = Seen) -> bool:
        """Whether the letter is meant; `see`: what may be seen of it."""
        told = see(letter) if self.as_seen else Seen(letter)
        return (
            (not self.states or state in self.states)
            and (not self.operations or _did(mark, self.operations))
            and self._fits_place(letter)
            and (not self.groups or letter.group.startswith(self.groups))
            and (not self.reasons or told.reason in self.reasons)
            and (not self.errors or _names(told.error_type or "", self.errors))
            and self._fits_text(told)
            and self._fits_record(told)
            and self._fits_time(letter)
            and (self.attempts is None or (letter.attempt or 0) >= self.attempts)
        )

    def fits_partition(self, topic: str, partition: int) -> bool:
        """Whether letters of a partition can be meant at all: others need not be read."""
        found = [Place.of(each) for each in self.places]
        return not found or any(
            (each.topic, each.partition) == (topic, partition) for each in found
        )

    def bounds(self, topic: str, partition: int, start: int, end: int) -> tuple[int, int]:
        """The part of a partition that has to be read."""
        mine = [each for each in map(Place.of, self.places) if each[:2] == (topic, partition)]
        if not mine or any(each.offset is None for each in mine):
            return start, end
        offsets = [each.offset for each in mine if each.offset is not None]
        return max(start, min(offsets)), min(end, max(offsets) + 1)

    def as_data(self) -> dict[str, Any]:
        """What is given, for JSON."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value not in ((), None) and value is not False
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Filter:
        """And back. What this version does not know is not left out: more letters would fit."""
        if unknown := set(data) - {field.name for field in fields(cls)}:
            raise ConfigurationError(
                f"letters are selected by {', '.join(sorted(unknown))}, which this version of"
                " redrive does not know: use the version that has begun it"
            )
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**given)

    @property
    def is_one_letter(self) -> bool:
        """Whether it names one letter, by its place."""
        return len(self.places) == 1 and Place.of(self.places[0]).offset is not None

    def __str__(self) -> str:
        shown = {
            name: ", ".join(value) if isinstance(value, tuple) else value
            for name, value in self.as_data().items()
            if name != "as_seen"
        }
        return "; ".join(f"{name} {value}" for name, value in shown.items()) or "all letters"

    def _fits_place(self, letter: Letter) -> bool:
        if not self.places:
            return True
        topic, partition, offset = letter.record[:3]
        return (
            letter.place in self.places
            or f"{topic}[{partition}]" in self.places
            or any(Place.of(each) == (topic, partition, offset) for each in self.places)
        )

    def _fits_text(self, told: Seen) -> bool:
        if self.text is None:
            return True
        said = f"{told.error_type or ''}: {told.message or ''}"
        return self.text.casefold() in said.casefold()

    def _fits_key(self, told: Seen) -> bool:
        if not told.masked:
            return fits_key(told.letter.record, self.keys)
        return not self.keys or told.key in self.keys

    def _fits_record(self, told: Seen) -> bool:
        letter = told.letter
        return (
            self._fits_key(told)
            and (not self.ids or told.id in self.ids)
            and (not self.origins or any(_is_from(letter, each) for each in self.origins))
            and all(_has(told, each) for each in self.headers)
        )

    def _fits_time(self, letter: Letter) -> bool:
        if self.since is None and self.until is None:
            return True
        died = letter.died
        if died is None:
            return False
        return (self.since is None or died >= self.since) and (
            self.until is None or died < self.until
        )


def age(milliseconds: int) -> str:
    """How long ago something was, without what does not matter: `3d4h`, `12m`."""
    for unit in (86_400_000, 3_600_000, 60_000, 1000):
        if milliseconds >= 10 * unit:
            return text(milliseconds // unit * unit)
    return text(max(milliseconds, 0) // 1000 * 1000)


def fits_key(record: Record, keys: Collection[str]) -> bool:
    """Whether a record has one of these keys, as text; no keys: all fit."""
    return not keys or _text(record.key) in keys


def _is_place(origin: str) -> bool:
    """Whether more than a topic is meant: no topic has such a name."""
    return "[" in origin or "@" in origin


def _is_from(letter: Letter, origin: str) -> bool:
    if not _is_place(origin):
        return letter.origin_topic == origin
    topic, partition, offset = Place.of(origin)
    return (letter.origin_topic, letter.origin_partition) == (topic, partition) and (
        offset is None or letter.origin_offset == offset
    )


def _names(name: str, wanted: tuple[str, ...]) -> bool:
    return any(name == each or name.endswith(f".{each}") for each in wanted)


def _did(mark: Mark | None, operations: tuple[str, ...]) -> bool:
    return mark is not None and any(each in mark.operations for each in operations)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _has(told: Seen, wanted: str) -> bool:
    name, equals, value = wanted.partition("=")
    if not equals:
        return any(own == name for own, _ in told.letter.headers)
    if not told.masked:
        return any(own == name and _text(data) == value for own, data in told.letter.headers)
    # A masked header has no value that could be meant, not even its mask.
    return any(own == name and text == value != MASK for own, text in told.headers)
