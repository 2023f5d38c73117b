"""Showing letters to people: values decoded and masked; nothing in them is trusted.

`Seen` is the one way by which anything of a letter is printed, or written out of Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redrive.dead.masking import (
    MASK,
    Apart,
    OpaqueError,
    apart,
    as_json,
    bytes_apart,
    is_masked,
    json_of,
    leaves_without,
    masked_whole,
    readable,
    secrets_as_written,
    whole_as_written,
    without,
)
from redrive.dead.user_code import Calls, NotAnsweredError, at_once
from redrive.envelope import ERROR_MESSAGE_BYTES, type_and_text
from redrive.fingerprint import pattern
from redrive.threads import raise_ctrl_c
from redrive.tuning import MASKED_SECRETS

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letter import Letter
    from redrive.history import Tried

UNKNOWN_SECRETS: Final = "(not shown: fields of the record are masked, and it could quote them)"
_HEX_ROW: Final = 32
_CONTROLS: Final = (*range(9), *range(11, 32), *range(127, 160))
_TURNING: Final = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPED: Final = {code: f"\\x{code:02x}" for code in _CONTROLS} | {
    code: f"\\u{code:04x}" for code in _TURNING
}
"""Control characters except tab and line feed, of seven and of eight bits: a terminal would obey
them. And what turns the direction of writing round: text would not look like what it is."""


class Shown(NamedTuple):
    """A value as text, and how it was read: `decoded`, `json`, `text`, `hex`, `null`, `hidden`."""

    how: str
    text: str
    problem: str = ""
    """Why the app's own decoder could not read it."""


class _Read(NamedTuple):
    """A value that was read."""

    how: str
    apart: Apart | None
    """Taken apart, where fields are masked; None if it cannot be."""
    text: str = ""
    """As it is shown where no field is masked, if the decoder has read it."""
    problem: str = ""
    """Why the decoder could not read it."""
    is_late: bool = False
    """Whether the decoder was not waited for any more."""


class Seen:
    """One letter as people may see it: without what the app masks."""

    def __init__(
        self,
        letter: Letter,
        app: App | None = None,
        masked: Sequence[str] | None = None,
        calls: Calls = at_once,
    ) -> None:
        """`masked`: the fields, where no app says which; `calls`: calls code of the app."""
        self.letter = letter
        self._calls = calls
        self._handler = None if app is None else app.handlers.get(letter.origin_topic or "")
        named: Sequence[str] = () if app is None else app.masked
        self.masked = named if masked is None else masked

    @cached_property
    def value(self) -> Shown:
        """By the app's own decoder, else as JSON, text or bytes."""
        data = self.letter.record.value
        if data is None:
            return Shown("null", "null")
        read = self._read
        if self.masked:
            if self._apart is None or self._too_many:
                return Shown("hidden", hidden(data), self._problem)
            shown = leaves_without(self._apart.data, self._secrets)
            return Shown(read.how, printable(as_json(shown, 2)), self._problem)
        if read.how == "decoded":
            return Shown(read.how, read.text)
        return plain_value(data)._replace(problem=read.problem)

    @property
    def _problem(self) -> str:
        """Why the decoder could not read it, without what masked fields hold."""
        if self._read.is_late:
            return self._read.problem
        kind, colon, said = self._read.problem.partition(": ")
        return f"{kind}{colon}{self.quoted(said)}" if colon else ""

    @property
    def key(self) -> str | None:
        return self._bytes(self.letter.record.key, self._key)

    @property
    def headers(self) -> list[tuple[str, str | None]]:
        """The headers that the record had before it died."""
        own = self.letter.headers
        return [
            (name, MASK if is_masked(name, self.masked) else self._bytes(data, found))
            for (name, data), found in zip(own, self._headers, strict=True)
        ]

    @property
    def id(self) -> str | None:
        return self.without(self.letter.id)

    @property
    def reason(self) -> str | None:
        return self.without(self.letter.reason)

    @property
    def error_type(self) -> str | None:
        return self.without(self.letter.error_type)

    @property
    def message(self) -> str | None:
        return self.quoted(self.letter.error_message)

    @property
    def pattern(self) -> str:
        """Its message without numbers, ids and quoted text: tells apart what is in one group.

        Others than redrive write messages of any length: the beginning is enough, as ours are.
        """
        return _pattern((self.message or "")[:ERROR_MESSAGE_BYTES])

    @property
    def trace(self) -> str | None:
        return self.quoted(self.letter.error_trace)

    @property
    def history(self) -> list[Tried]:
        """When the last attempts failed, and with what."""
        return [each._replace(error=self.without(each.error) or "") for each in self.letter.history]

    def quoted(self, message: str | None) -> str | None:
        """What an error says of this letter, without what masked fields hold.

        Where that is not known, nothing of it is: also its pattern has words of the value.
        """
        if message is None or self._knows_secrets:
            return self.without(message)
        return UNKNOWN_SECRETS

    def without(self, text: str | None) -> str | None:
        """A text of the letter, without what masked fields hold."""
        if text is None or not self.masked:
            return text
        return MASK if self._too_many else without(text, self._secrets)

    def hides_the_same_as(self, other: Seen) -> bool:
        """Whether masked fields hold the same in both."""
        return self._secrets == other._secrets

    def as_data(self) -> dict[str, Any]:
        """What is known of the letter, for JSON; without key, value and headers."""
        data = self.letter.as_data()
        named = {"reason": self.reason, "error_type": self.error_type, "id": self.id}
        return {**data, **named, "error_message": self.message}

    @cached_property
    def _read(self) -> _Read:
        """The value, as the app's decoder reads it, else as JSON."""
        data, problem, is_late = self.letter.record.value or b"", "", False
        decode = None if self._handler is None else self._handler.decode
        if decode is not None:
            try:
                found: _Read = self._calls(
                    lambda: self._decoded(decode(data)), (decode, data, tuple(self.masked))
                )
            except NotAnsweredError as error:
                problem, is_late = str(error), True
            except BaseException as error:  # noqa: BLE001 -- a decoder may raise anything
                raise_ctrl_c(error)
                problem = type_and_text(error)
            else:
                return found
        return _Read("json", _apart(json_of(data), self.masked), problem=problem, is_late=is_late)

    def _decoded(self, decoded: Any) -> _Read:
        """What the decoder has made is an object of the app, whose code is called for this, too."""
        if self.masked:
            return _Read("decoded", _apart(decoded, self.masked))
        return _Read("decoded", None, _pretty(decoded))

    @property
    def _apart(self) -> Apart | None:
        """The value taken apart; None if it cannot be."""
        return self._read.apart

    @cached_property
    def _key(self) -> Apart | None:
        """The key taken apart."""
        key = self.letter.record.key
        return None if key is None or not self.masked else bytes_apart(key, self.masked)

    @cached_property
    def _headers(self) -> list[Apart | None]:
        """The headers taken apart, in their order."""
        return [self._header(name, data) for name, data in self.letter.headers]

    def _header(self, name: str, data: bytes | None) -> Apart | None:
        if data is None or not self.masked:
            return None
        if is_masked(name, self.masked):
            return masked_whole(data)
        found = bytes_apart(data, self.masked)
        # Of bytes that are no text, such as the id of a schema, the name says what they are.
        return found if readable(data) is not None else found._replace(complete=True)

    @cached_property
    def _secrets(self) -> frozenset[str]:
        """What masked fields hold, of value, key and headers: as decoded, and as written."""
        parts = (self._apart, self._key, *self._headers)
        return frozenset().union(*(each.secrets for each in parts if each), *self._written())

    def _written(self) -> Iterator[frozenset[str]]:
        if not self.masked:
            return
        record = self.letter.record
        for data in (record.value, record.key):
            yield secrets_as_written(data or b"", self.masked)
        for name, data in self.letter.headers:
            if is_masked(name, self.masked):
                yield whole_as_written(data or b"")
            else:
                yield secrets_as_written(data or b"", self.masked)

    @property
    def _too_many(self) -> bool:
        """Whether masked fields hold so much that nothing is looked through for all of it."""
        return len(self._secrets) > 2 * MASKED_SECRETS

    @property
    def _knows_secrets(self) -> bool:
        """Whether all of the record could be taken apart, so that no secret is missing."""
        if not self.masked:
            return True
        if any(each is not None and not each.complete for each in (self._key, *self._headers)):
            return False
        is_null = self.letter.record.value is None
        return is_null or (self._apart is not None and self._apart.complete)

    def _bytes(self, data: bytes | None, found: Apart | None) -> str | None:
        """A key or a header as it may be shown."""
        if data is None or found is None:
            return bytes_text(data)
        is_text = readable(data) is not None
        return self.without(printable(found.data)) if is_text else hidden(data)


See = Callable[["Letter"], Seen]
"""How letters of one topic may be seen."""


_pattern: Final = lru_cache(maxsize=1024)(pattern)


def hidden(data: bytes) -> str:
    """What is said instead of bytes in which a masked field could be anywhere."""
    return f"({len(data):,} bytes; fields of it are masked)"


def value_of(letter: Letter, app: App | None = None) -> Shown:
    """The value of a letter: by the app's own decoder, else as JSON, text or bytes."""
    return Seen(letter, app).value


def plain_value(data: bytes) -> Shown:
    """A value without a decoder, of which nothing is masked."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Shown("hex", hex_rows(data))
    laid_out = json_lines(text)
    if laid_out is None:
        return Shown("text" if json_of(text) is None else "json", printable(text))
    return Shown("json", laid_out)


def json_lines(text: str) -> str | None:
    """JSON, line by line, if that changes nothing else; None if it would, or if it is no JSON.

    No digit of a number, no field that is there twice, and no character that `printable` replaces:
    whoever edits or compares these lines has all of the value before them, as it was written.
    """
    try:
        lines = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        same = _literally(lines) == _literally(text) and printable(lines) == lines
    except (ValueError, RecursionError):
        return None
    return lines if same else None


def _literally(text: str) -> Any:
    """What is in a JSON text: numbers as they are written, objects with all their fields."""
    return json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=list)


def printable(text: str) -> str:
    """The text, without what a terminal would obey or could not print."""
    return text.translate(_ESCAPED).encode(errors="backslashreplace").decode()


def hex_rows(data: bytes) -> str:
    """Bytes in hexadecimal, a few in a row."""
    rows = range(0, len(data), _HEX_ROW)
    return "\n".join(data[row : row + _HEX_ROW].hex(" ", 4) for row in rows)


def bytes_text(data: bytes | None) -> str | None:
    """A key or a header's value: text, or hexadecimal where it is none."""
    if data is None:
        return None
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def time_text(milliseconds: int | None) -> str:
    """A time as people read it, in UTC; a dash for none, and for one that cannot be."""
    if milliseconds is None:
        return "-"
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "-"
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _apart(data: Any, masked: Sequence[str]) -> Apart | None:
    try:
        return apart(data, masked)
    except OpaqueError:
        return None


def _pretty(data: Any) -> str:
    plain = _plain(data)
    return printable(repr(data) if plain is None and data is not None else as_json(plain, 2))


_AS_DATA: Final[Sequence[Callable[[Any], Any]]] = (
    lambda data: data.model_dump(),
    lambda data: asdict(data) if is_dataclass(data) and not isinstance(data, type) else None,
)


def _plain(data: Any) -> Any:
    """What JSON can show of decoded data; None if it is not known how."""
    if isinstance(data, Mapping | list | tuple | str | int | float | bool):
        return data
    for way in _AS_DATA:
        try:
            found = way(data)
        except Exception:  # noqa: BLE001, S112 -- it is somebody's object: it may do anything
            continue
        if found is not None:
            return found
    return None
