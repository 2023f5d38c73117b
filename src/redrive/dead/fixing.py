"""Fixes: a function of the user's that changes the value of a letter before it is driven again."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from redrive import envelope as envelopes
from redrive.dead.showing import plain_value
from redrive.errors import RedriveError
from redrive.handler import name_of
from redrive.record import Record

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letter import Letter

Fix = Callable[[Record], Any]


class FixError(RedriveError):
    """A fix raised, or returned what cannot be a value."""


def fixed(fix: Fix, letter: Letter, app: App | None = None) -> bytes:
    """The value that the fix makes of a letter's; FixError if it makes none."""
    try:
        made = fix(record_of(letter, app))
        return _encoded(made)
    except Exception as error:
        said = f"{type(error).__name__}: {envelopes.text_of(error)}"
        raise FixError(f"{name_of(fix)} failed for {letter.place} ({said})") from error


def record_of(letter: Letter, app: App | None = None) -> Record:
    """A letter as its handler would see it: at its origin, and decoded where that works."""
    given = letter.record
    record = Record(
        letter.origin_topic or given.topic,
        letter.origin_partition or 0,
        letter.origin_offset or 0,
        given.key,
        given.value,
        letter.headers,
        letter.origin_timestamp,
    )
    handler = None if app is None else app.handlers.get(record.topic)
    if handler is not None and handler.decode is not None and given.value is not None:
        try:
            record.data = handler.decode(given.value)
        except Exception:  # noqa: BLE001 -- that may be what is to be fixed
            record.data = None
    return record


def difference(before: bytes | None, after: bytes, masked: Collection[str] = ()) -> Iterator[str]:
    """What a fix changes, line by line; nothing, if it changes nothing."""
    old, new = (
        [] if data is None else plain_value(data, masked).text.splitlines()
        for data in (before, after)
    )
    found = [*difflib.unified_diff(old, new, lineterm="", n=1)][2:]
    if not found and before != after:
        found = [f"{len(before or b'')} bytes become {len(after)}; what differs is not shown"]
    return iter(found)


def _encoded(made: object) -> bytes:
    if isinstance(made, bytes):
        return made
    if isinstance(made, str):
        return made.encode()
    if isinstance(made, dict | list | int | float):
        return json.dumps(made, separators=(",", ":")).encode()
    what = "nothing" if made is None else f"a {type(made).__name__}"
    raise TypeError(f"it returned {what}: return the new value, as bytes, text or JSON data")
