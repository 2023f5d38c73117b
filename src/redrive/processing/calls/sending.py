"""Senders: what contexts of one record and of a batch have in common; `ctx.send` first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from redrive.envelope import user_headers
from redrive.errors import ContextError
from redrive.handler import undeclared
from redrive.ids import MessageId
from redrive.processing.calls.scope import Scope
from redrive.record import Headers, Write, is_topic_name
from redrive.tuning import SENT_TOPICS_KEPT

_new: Final = tuple.__new__
_LAST_PARTITION: Final = (1 << 31) - 1

HeadersGiven = Headers | Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]


class Sender:
    """What contexts of one record and of a batch have in common."""

    __slots__ = ("_allowed", "_open", "_scope", "_sends")

    def __init__(self, scope: Scope, allowed: tuple[str, ...] | None) -> None:
        """`allowed` are the topics that can be sent to; None: any."""
        self._scope = scope
        self._allowed = allowed
        self._sends: list[Write] | None = None
        self._open = True

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
        id: MessageId = None,  # noqa: A002 -- the word for it, and only a parameter
    ) -> None:
        """Write a message if, and only if, this record is done: never for an attempt that failed.

        Bytes and None are written as they are, text as UTF-8, dicts, lists and numbers as JSON.
        `id` (outbox only): if a message with this id was sent before, the record is a duplicate.
        """
        if not self._open:
            raise ContextError(
                f"ctx.send({topic!r}) after the record's outcome: its messages were published with"
                " it; send before the handler returns (or before ctx.ack())"
            )
        if type(value) is not bytes:
            value = _encoded(value)
        if type(key) is not bytes:
            key = _bytes("key", key)
        allowed = self._allowed
        if allowed is not None and topic not in allowed:
            raise ContextError(f"ctx.send({topic!r}): {undeclared(topic, allowed)}")
        if topic not in self._scope.sent_to or partition is not None:
            _check_place(topic, partition, self._scope.sent_to)
        made = (topic, key, value, _headers(headers) if headers else (), partition, None)
        write = _new(Write, made)  # a Write, by the tuple's own constructor: in half the time
        if id is not None:
            write = self._scope.identified(write, id)
        if self._sends is None:
            self._sends = [write]
        else:
            self._sends.append(write)

    @property
    def db(self) -> Any:
        """The connection whose transaction the record's outcome is part of.

        A `psycopg.Connection`, in async handlers a `psycopg.AsyncConnection`. Its transaction is
        not the handler's to end: it is committed with the outcome.
        """
        if not self._open:
            raise ContextError(
                "ctx.db after the record's outcome: its transaction has ended with it; use it"
                " before the handler returns"
            )
        return self._scope.connection()

    @property
    def resources(self) -> Any:
        """What `@app.resource` opened in this process, by name."""
        return self._scope.resources

    @property
    def trying(self) -> bool:
        """Whether this call is only tried (`redrive dead try`): it must have no effect."""
        return self._scope.trying

    def close(self) -> list[Write] | None:
        """End the context; returns what was sent."""
        self._open = False
        return self._sends


def _check_place(topic: str, partition: int | None, good: set[str]) -> None:
    # Names that were good once are remembered: this is asked for every message.
    if topic not in good:
        if not (isinstance(topic, str) and is_topic_name(topic)):
            raise ContextError(f"ctx.send: {topic!r} is not a name a Kafka topic can have")
        if len(good) < SENT_TOPICS_KEPT:
            good.add(topic)
    if partition is not None and not (type(partition) is int and 0 <= partition <= _LAST_PARTITION):
        raise ContextError(f"ctx.send({topic!r}): there is no partition {partition!r}")


def _encoded(value: object) -> bytes | None:
    if isinstance(value, dict | list | int | float):
        return json.dumps(value, separators=(",", ":")).encode()
    return _bytes("value", value)


def _header(pair: object) -> tuple[str, bytes | None]:
    match pair:
        case (str(name), value) if name.isascii() or _is_text(name):
            if "\0" not in name:  # librdkafka would cut it off there
                return name, _bytes(f"header {name!r}", value)
    raise ContextError(
        f"ctx.send: {pair!r} cannot be a header: it is a name, which is text, and a value"
    )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(what: str, given: object) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise ContextError(
        f"ctx.send: the {what} is {type(given).__name__}; encode it to bytes or text first"
    )


def _headers(given: HeadersGiven) -> Headers:
    headers = tuple(map(_header, given.items() if isinstance(given, Mapping) else given))
    # Headers are often passed on from the record: redrive's own are about that record, not this.
    return user_headers(headers)
