"""Where a record's message id comes from: `id=header("id")`, `id=field("order.id")`, `id=key`.

Any callable from Record to text, bytes or a number does as well. Where it gives None or nothing at
all, the id is derived from the record's origin: the topic's Kafka id, partition and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redrive.record import Record

MessageId = str | bytes | int | None
IdOf = Callable[[Record], MessageId]


def header(name: str) -> IdOf:
    """The id is the value of that header."""

    def id_from_header(record: Record) -> MessageId:
        return record.header(name)

    return id_from_header


def field(path: str) -> IdOf:
    """The id is that field of the decoded value; `order.id` looks into `order`."""
    names = path.split(".")

    def id_from_field(record: Record) -> MessageId:
        value = record.data
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return value  # type: ignore[no-any-return]  # a user's data may hold anything; as_text checks

    return id_from_field


def key(record: Record) -> MessageId:
    """The id is the record's key."""
    return record.key


def as_text(message_id: object) -> str | None:
    """The id as text, the same for the same bytes whatever type carries it."""
    if message_id is None or message_id in ("", b""):
        return None
    if isinstance(message_id, bytes):
        return message_id.decode(errors="backslashreplace")
    if isinstance(message_id, str | int) and not isinstance(message_id, bool):
        return str(message_id)
    raise TypeError(f"a message id is text, bytes or a whole number, not {message_id!r:.80}")


def from_origin(topic_id: str, partition: int, offset: int) -> str:
    """The id of a record that brings none. A recreated topic has another id: nothing repeats."""
    return f"{topic_id}/{partition}/{offset}"
