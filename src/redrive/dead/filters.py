"""Filters: which letters are meant. Pure, and the same in commands, jobs and on Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple

from redrive.dead.letter import Letter
from redrive.dead.states import STATES, State
from redrive.durations import text
from redrive.errors import ConfigurationError

_PLACE: Final = re.compile(r"([A-Za-z0-9._-]+)\[([0-9]+)\](?:@([0-9]+))?")


class Place(NamedTuple):
    """A letter's place, or a whole partition."""

    topic: str
    partition: int
    offset: int | None

    @classmethod
    def of(cls, written: str) -> Place:
        """What `shop.dead[0]@17` and `shop.dead[0]` name."""
        found = _PLACE.fullmatch(written)
        if found is None:
            raise ConfigurationError(
                f"{written!r} is not a letter's place: write topic[partition]@offset, such as"
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
    """Topics that letters come from."""
    since: int | None = None
    """Died at or after this time, in milliseconds since 1970."""
    until: int | None = None
    """Died before this time."""
    attempts: int | None = None
    """At least so many."""
    states: tuple[State, ...] = ()

    def __post_init__(self) -> None:
        unknown = [each for each in self.states if each not in STATES]
        if unknown:
            raise ConfigurationError(
                f"there is no state {unknown[0]!r}; it can be {', '.join(STATES)}"
            )
        for each in self.places:
            Place.of(each)

    def fits(self, letter: Letter, state: State) -> bool:
        """Whether the letter is meant."""
        return (
            (not self.states or state in self.states)
            and self._fits_place(letter)
            and (not self.groups or letter.group.startswith(self.groups))
            and (not self.reasons or letter.reason in self.reasons)
            and (not self.errors or _names(letter.error_type or "", self.errors))
            and self._fits_text(letter)
            and self._fits_record(letter)
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
        return {name: value for name, value in asdict(self).items() if value not in ((), None)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Filter:
        """And back."""
        known = {field.name for field in fields(cls)}
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in data.items()
            if name in known
        }
        return cls(**given)

    def __str__(self) -> str:
        shown = {
            name: ", ".join(value) if isinstance(value, tuple) else value
            for name, value in self.as_data().items()
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

    def _fits_text(self, letter: Letter) -> bool:
        if self.text is None:
            return True
        said = f"{letter.error_type or ''}: {letter.error_message or ''}"
        return self.text.casefold() in said.casefold()

    def _fits_record(self, letter: Letter) -> bool:
        return (
            (not self.keys or _text(letter.record.key) in self.keys)
            and (not self.ids or letter.id in self.ids)
            and (not self.origins or letter.origin_topic in self.origins)
            and all(_has(letter, each) for each in self.headers)
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


def _names(name: str, wanted: tuple[str, ...]) -> bool:
    return any(name == each or name.endswith(f".{each}") for each in wanted)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _has(letter: Letter, wanted: str) -> bool:
    name, equals, value = wanted.partition("=")
    return any(own == name and (not equals or _text(data) == value) for own, data in letter.headers)
