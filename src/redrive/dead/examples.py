"""Examples: how one letter would fail, and what it would send, as people may see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from redrive.dead.dialects import UNKNOWN
from redrive.dead.letter import Letter
from redrive.dead.showing import Seen
from redrive.envelope import ERROR_MESSAGE_BYTES, bounded, text_of
from redrive.fingerprint import fingerprint
from redrive.record import Record, Write

Looks = Sequence[Seen]
"""A letter as it died, and as it was tried: a fix may have changed what masked fields hold."""


class Failure(NamedTuple):
    """How one letter would fail."""

    place: str
    """Of the letter, in the dead topic."""
    message: str
    where: str
    """The functions of the user's code that raised it, innermost first; empty: none of them."""

    def __str__(self) -> str:
        where = f" in {self.where}" if self.where else ""
        return f"{self.message}{where} ({self.place})"


class Sent(NamedTuple):
    """A message that one letter would send."""

    place: str
    """Of the letter, in the dead topic."""
    topic: str
    key: str | None
    value: str


def failure(error: BaseException, looks: Looks, own: frozenset[str]) -> Failure:
    """An error of a letter's trial; `own`: the modules that are the user's code."""
    message = bounded(_told(text_of(error), looks), ERROR_MESSAGE_BYTES)
    return Failure(looks[0].letter.place, message, fingerprint(error, own=own).where)


def sent(write: Write, looks: Looks) -> Sent:
    """A message: without its own masked fields, and without what those of the letter hold."""
    record = Record(write.topic, 0, 0, write.key, write.value, write.headers)
    message = Seen(Letter(record, UNKNOWN), masked=looks[0].masked)
    key = None if message.key is None else _told(message.key, looks)
    return Sent(looks[0].letter.place, write.topic, key, _told(message.value.text, looks))


def _told(text: str, looks: Looks) -> str:
    for seen in looks:
        text = seen.quoted(text) or ""
    return text
