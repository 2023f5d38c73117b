"""Showing letters to people: values decoded, masked and bounded; nothing in them is trusted."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redrive.envelope import text_of

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letter import Letter

MASK: Final = "***"
_HEX_ROW: Final = 32
_ESCAPED: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), 127)}
"""Control characters except tab and line feed: a terminal would obey them."""


class Shown(NamedTuple):
    """A value as text, and how it was read: `decoded`, `json`, `text`, `hex`, `null`."""

    how: str
    text: str
    problem: str = ""
    """Why the app's own decoder could not read it."""


def value_of(letter: Letter, app: App | None = None) -> Shown:
    """The value of a letter: by the app's own decoder, else as JSON, text or bytes."""
    data = letter.record.value
    masked = frozenset(app.masked) if app is not None else frozenset()
    if data is None:
        return Shown("null", "null")
    problem = ""
    handler = None if app is None else app.handlers.get(letter.origin_topic or "")
    if handler is not None and handler.decode is not None:
        try:
            return Shown("decoded", _pretty(handler.decode(data), masked))
        except Exception as error:  # noqa: BLE001 -- a decoder may raise anything
            problem = f"{type(error).__name__}: {text_of(error)}"
    return plain_value(data, masked)._replace(problem=problem)


def plain_value(data: bytes, masked: Collection[str] = ()) -> Shown:
    """A value without a decoder. What cannot be masked field by field is not shown at all."""
    try:
        return Shown("json", _pretty(json.loads(data), masked))
    except ValueError:
        if masked:
            return Shown("hidden", f"({len(data):,} bytes; fields of it are masked)")
    try:
        return Shown("text", printable(data.decode()))
    except UnicodeDecodeError:
        return Shown("hex", hex_rows(data))


def printable(text: str) -> str:
    """The text, without what a terminal would obey."""
    return text.translate(_ESCAPED)


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


def masked_data(data: Any, masked: Collection[str], path: str = "") -> Any:
    """The same with the values of masked fields taken out; `card.number` looks into `card`."""
    if isinstance(data, Mapping):
        return {
            name: MASK
            if _is_masked(f"{path}{name}", masked)
            else masked_data(value, masked, f"{path}{name}.")
            for name, value in data.items()
        }
    if isinstance(data, list | tuple):
        return [masked_data(each, masked, path) for each in data]
    return data


def _is_masked(path: str, masked: Collection[str]) -> bool:
    return path in masked or path.rpartition(".")[2] in masked


def _pretty(data: Any, masked: Collection[str]) -> str:
    plain = _plain(data)
    if plain is None and data is not None:
        # Neither JSON nor something that says its fields: what is masked could be anywhere in it.
        return f"a {type(data).__name__}" if masked else printable(repr(data))
    shown = json.dumps(masked_data(plain, masked), indent=2, ensure_ascii=False, default=str)
    return printable(shown)


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
