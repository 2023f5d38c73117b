"""Fixes: a function of the user's that changes the value of a letter before it is replayed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from redrive import envelope as envelopes
from redrive.dead.letter import Letter
from redrive.dead.showing import Seen, hex_rows, json_lines, printable
from redrive.errors import ConfigurationError, RedriveError
from redrive.handler import name_of
from redrive.record import Record
from redrive.threads import raise_ctrl_c

if TYPE_CHECKING:
    from redrive.app import App

Fix = Callable[[Record], Any]


class FixError(RedriveError):
    """A fix raised, or returned what cannot be a value."""


def fixed(fix: Fix, letter: Letter, app: App | None = None) -> bytes:
    """The value that the fix makes of a letter's; FixError if it makes none."""
    try:
        made = fix(record_of(letter, app))
        return _encoded(made)
    except BaseException as error:
        raise_ctrl_c(error)
        seen = Seen(letter, app)
        said = seen.quoted(envelopes.text_of(error))
        what = f"{seen.without(type(error).__name__)}: {said}"
        raise FixError(f"{name_of(fix)} failed for {letter.place} ({what})") from error


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
        except BaseException as error:  # noqa: BLE001 -- that may be what is to be fixed
            raise_ctrl_c(error)
            record.data = None
    return record


def difference(letter: Letter, after: bytes, app: App | None = None) -> Iterator[str]:
    """What a fix changes, line by line; nothing, if it changes nothing.

    A line that is shown as unchanged is unchanged, to the last digit of its numbers.
    """
    before = letter.record.value
    if before == after:
        return
    record = letter.record._replace(value=after)
    seen = Seen(letter, app), Seen(Letter(Record(*record), letter.dialect), app)
    if seen[0].masked:
        yield from _masked_difference(*seen)
        return
    found = _changed(_text_of(before), _text_of(after))
    # Laid out in lines, JSON may be the same: of other spaces, or with other escapes in its texts.
    yield from found or _changed(_raw_text_of(before), _raw_text_of(after))


def editable(letter: Letter) -> tuple[str, bool]:
    """The value of a letter as a text to be changed, and whether it is JSON laid out in lines.

    Whatever is left alone in it stays as it is. ConfigurationError, if the value is no text.
    """
    try:
        text = (letter.record.value or b"").decode()
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{letter.place} is not text: use a fix, which gets the bytes"
        ) from None
    laid_out = json_lines(text)
    return (text, False) if laid_out is None else (laid_out, True)


def _masked_difference(old: Seen, new: Seen) -> Iterator[str]:
    """The same, of what may be seen: a fix may have moved what is masked to another field."""
    is_null = old.letter.record.value is None
    was = None if is_null else new.without(old.value.text)
    yield from _changed(was, old.without(new.value.text))
    if not (_is_whole(old) and _is_whole(new) and old.hides_the_same_as(new)):
        sizes = [len(each.letter.record.value or b"") for each in (old, new)]
        yield (
            f"{sizes[0]} bytes become {sizes[1]}; not all that differs is shown, as fields are"
            " masked"
        )


def _is_whole(seen: Seen) -> bool:
    """Whether a value is shown with everything but what masked fields hold."""
    text = _raw_text_of(seen.letter.record.value)
    return text is None or (seen.value.how == "json" and json_lines(text) is not None)


def _changed(old: str | None, new: str | None) -> list[str]:
    """The lines that differ, with what is around them."""
    # At line feeds alone: other ends of lines are part of a line, and may be what differs.
    before, after = ([] if each is None else each.split("\n") for each in (old, new))
    found = [*difflib.unified_diff(before, after, lineterm="", n=1)][2:]
    return [*map(printable, found)]


def _text_of(value: bytes | None) -> str | None:
    raw = _raw_text_of(value)
    return raw if raw is None else json_lines(raw) or raw


def _raw_text_of(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return hex_rows(value)


def _encoded(made: object) -> bytes:
    if isinstance(made, bytes):
        return made
    if isinstance(made, str):
        return made.encode()
    if isinstance(made, dict | list | int | float):
        return json.dumps(made, separators=(",", ":"), allow_nan=False).encode()
    what = "nothing" if made is None else f"a {type(made).__name__}"
    raise TypeError(f"it returned {what}: return the new value, as bytes, text or JSON data")
