"""Where a record's message id comes from: `id=header("id")`, `id=field("order.id")`, `id=key`.

Any callable from Record to a string, bytes, a number or a UUID works as well. A record for which it
returns None or something empty has no id and is buried for that, unless it is a tombstone: by its
place, no duplicate of it would ever be found. `id=optional(field("order.id"))` opts into that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final
from uuid import UUID

from redrive.record import Record

_LONGEST: Final = 1000
MessageId = str | bytes | int | UUID | None
IdOf = Callable[[Record], MessageId]


def header(name: str) -> IdOf:
    """The id is the value of that header."""

    def id_from_header(record: Record) -> MessageId:
        return record.header(name)

    id_from_header.__qualname__ = f"header({name!r})"  # how errors name it
    return id_from_header


def field(path: str) -> IdOf:
    """The id is that field of the decoded value; `order.id` looks into `order`."""
    names = path.split(".")

    def id_from_field(record: Record) -> MessageId:
        value = record.data
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return value  # type: ignore[no-any-return]  # -- a user's data may hold anything; as_text checks

    id_from_field.__qualname__ = f"field({path!r})"  # how errors name it
    return id_from_field


def key(record: Record) -> MessageId:
    """The id is the record's key."""
    return record.key


def optional(id_of: IdOf) -> IdOf:
    """If that returns nothing, the id is the record's place: its topic, partition and offset."""

    def id_or_place(record: Record) -> MessageId:
        return id_of(record)

    id_or_place.__qualname__ = f"optional({getattr(id_of, '__qualname__', id_of)})"
    id_or_place.optional = True  # type: ignore[attr-defined]  # -- read by is_optional
    return id_or_place


def is_optional(id_of: IdOf) -> bool:
    """Whether this function allows records without an id."""
    return getattr(id_of, "optional", False) is True


def as_text(message_id: object) -> str | None:
    """The id as text, the same for the same bytes whatever type carries it.

    Ids that are not readable text (binary keys, control characters) are written in hexadecimal, so
    that headers and databases accept them and no two of them become the same text. Ids longer than
    1,000 bytes are replaced by their SHA-256: indexes accept no more.
    """
    if message_id is None:
        return None
    if isinstance(message_id, bytes):
        return _readable(message_id)
    if isinstance(message_id, str | int | UUID) and not isinstance(message_id, bool):
        return _readable(str(message_id).encode(errors="surrogatepass"))
    raise TypeError(f"a message id must be a string, bytes or an integer, not {message_id!r:.80}")


def _readable(data: bytes) -> str | None:
    if not data:
        return None
    if len(data) > _LONGEST:
        return f"sha256:{sha256(data).hexdigest()}"
    # Not str.isprintable: it changes with Python's version, and an id must not.
    if min(data) >= ord(" "):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return f"0x{data.hex()}"


def is_from_origin(message_id: str, record: Record) -> bool:
    """Whether the record's id was derived from its origin."""
    return message_id.endswith(f"/{record.partition}/{record.offset}")


def from_origin(topic_id: str, partition: int, offset: int) -> str:
    """The id of a record that has none. A recreated topic has another topic id: no id repeats."""
    return f"{topic_id}/{partition}/{offset}"
