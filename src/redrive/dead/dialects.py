"""Dialects: how dead letters say where they come from and why they died; one table, pure.

Kafka has no standard for it: each library writes headers of its own, some as text, some as Java's
big-endian numbers. A dialect names the headers of each field, the best one first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from redrive import envelope as envelopes
from redrive.errors import ConfigurationError
from redrive.record import Headers

Name = Literal["redrive", "spring", "smallrye", "connect", "streams", "share", "unknown"]
Wanted = Literal["auto", "redrive", "spring", "smallrye", "connect", "streams", "share"]
"""`auto` looks at each letter by itself."""
Value = str | int


class From(NamedTuple):
    """The headers that carry a field, the best one first, and how to read them."""

    headers: tuple[str, ...]
    read: Callable[[bytes], Value | None]


@dataclass(frozen=True)
class Dialect:
    """One way to write dead letters."""

    name: Name
    marks: tuple[str, ...]
    """Headers by which it is recognised."""
    prefixes: tuple[str, ...]
    """What its own headers begin with: they are taken off when a letter is replayed.

    Those of redrive are known by their whole names: any other `redrive-` header is the user's."""
    fields: Mapping[str, From]

    def value(self, field: str, headers: Mapping[str, bytes | None]) -> Value | None:
        """A field of a letter; None if it is missing or cannot be read."""
        given = self.fields.get(field) or _OF_REPLAYS.get(field)
        if given is None:
            return None
        for name in given.headers:
            data = headers.get(name)
            if data is not None and (value := given.read(data)) is not None:
                return value
        return None

    def without_own(self, headers: Headers) -> Headers:
        """The headers that are the user's."""
        users = envelopes.user_headers(headers)
        return tuple(each for each in users if not each[0].startswith(self.prefixes))


def text(data: bytes) -> str | None:
    """Text, whatever its bytes."""
    return data.decode(errors="replace") or None


def number(data: bytes) -> int | None:
    """A number that is written as text."""
    digits = data.removeprefix(b"-")
    return int(data) if digits.isdigit() and len(digits) <= 19 else None


def java_number(data: bytes) -> int | None:
    """A number as Java's ByteBuffer and BigInteger write it; or as text, as some producers do."""
    written = number(data)
    if written is not None or not 1 <= len(data) <= 8:
        return written
    return int.from_bytes(data, signed=True)


def class_of(data: bytes) -> str | None:
    """The class in what Java's Throwable.toString() says: `class: message`."""
    return text(data.partition(b":")[0].strip())


def _texts(*headers: str) -> From:
    return From(headers, text)


def _numbers(*headers: str) -> From:
    return From(headers, number)


def _java(*headers: str) -> From:
    return From(headers, java_number)


def _ours(*fields: str, read: Callable[[bytes], Value | None]) -> dict[str, From]:
    return {field: From((envelopes.header_of(field),), read) for field in fields}


_OF_REPLAYS: Final = {
    **_ours("replay_of", "operation", read=text),
    **_ours("replay_count", read=number),
}
"""What redrive writes whatever the dialect, where it replays a letter."""

REDRIVE: Final = Dialect(
    "redrive",
    (envelopes.header_of("dead_reason"),),
    (),
    {
        **_ours("id", "app", "origin_topic", "dead_reason", "history", read=text),
        **_ours("error_type", "error_message", "error_trace", "error_group", read=text),
        **_ours("origin_partition", "origin_offset", "origin_timestamp", "attempt", read=number),
    },
)
SPRING: Final = Dialect(
    "spring",
    (
        *("kafka_dlt-exception-fqcn", "kafka_dlt-original-topic"),
        *("kafka_exception-fqcn", "kafka_original-topic"),
    ),
    ("kafka_dlt-", "kafka_original-", "kafka_exception-", "kafka_key-exception-", "retry_topic-"),
    {
        "origin_topic": _texts("kafka_dlt-original-topic", "kafka_original-topic"),
        "origin_partition": _java("kafka_dlt-original-partition", "kafka_original-partition"),
        "origin_offset": _java("kafka_dlt-original-offset", "kafka_original-offset"),
        "origin_timestamp": _java(
            "kafka_dlt-original-timestamp",
            "kafka_original-timestamp",
            "retry_topic-original-timestamp",
        ),
        "app": _texts("kafka_dlt-original-consumer-group", "kafka_original-consumer-group"),
        # The listener's exception wraps the one that counts.
        "error_type": _texts(
            "kafka_dlt-exception-cause-fqcn",
            "kafka_exception-cause-fqcn",
            "kafka_dlt-exception-fqcn",
            "kafka_exception-fqcn",
        ),
        "error_message": _texts("kafka_dlt-exception-message", "kafka_exception-message"),
        "error_trace": _texts("kafka_dlt-exception-stacktrace", "kafka_exception-stacktrace"),
        "attempt": _java("retry_topic-attempts", "kafka_deliveryAttempt"),
    },
)
SMALLRYE: Final = Dialect(
    "smallrye",
    ("dead-letter-reason", "dead-letter-exception-class-name"),
    ("dead-letter-",),
    {
        "origin_topic": _texts("dead-letter-topic"),
        "origin_partition": _numbers("dead-letter-partition"),
        "origin_offset": _numbers("dead-letter-offset"),
        "error_type": _texts("dead-letter-cause-class-name", "dead-letter-exception-class-name"),
        "error_message": _texts("dead-letter-cause", "dead-letter-reason"),
    },
)
CONNECT: Final = Dialect(
    "connect",
    ("__connect.errors.exception.class.name", "__connect.errors.stage"),
    ("__connect.errors.",),
    {
        "origin_topic": _texts("__connect.errors.topic"),
        "origin_partition": _numbers("__connect.errors.partition"),
        "origin_offset": _numbers("__connect.errors.offset"),
        "app": _texts("__connect.errors.connector.name"),
        "dead_reason": _texts("__connect.errors.stage"),
        "error_type": _texts("__connect.errors.exception.class.name"),
        "error_message": _texts("__connect.errors.exception.message"),
        "error_trace": _texts("__connect.errors.exception.stacktrace"),
    },
)
STREAMS: Final = Dialect(
    "streams",
    ("__streams.errors.exception",),
    ("__streams.errors.",),
    {
        "origin_topic": _texts("__streams.errors.topic"),
        "origin_partition": _numbers("__streams.errors.partition"),
        "origin_offset": _numbers("__streams.errors.offset"),
        "error_type": From(("__streams.errors.exception",), class_of),
        "error_message": _texts("__streams.errors.message"),
        "error_trace": _texts("__streams.errors.stacktrace"),
    },
)
SHARE: Final = Dialect(
    "share",
    ("__dlq.errors.topic",),
    ("__dlq.errors.",),
    {
        "origin_topic": _texts("__dlq.errors.topic"),
        "origin_partition": _numbers("__dlq.errors.partition"),
        "origin_offset": _numbers("__dlq.errors.offset"),
        "app": _texts("__dlq.errors.group"),
        # The broker knows no exception: what it says is one of a few sentences.
        "dead_reason": _texts("__dlq.errors.message"),
        "error_message": _texts("__dlq.errors.message"),
        "attempt": _numbers("__dlq.errors.delivery.count"),
    },
)
UNKNOWN: Final = Dialect("unknown", (), (), {})
DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each for each in (REDRIVE, CONNECT, STREAMS, SHARE, SPRING, SMALLRYE)
}
_MARKS: Final = {mark: each.name for each in DIALECTS.values() for mark in each.marks}


def recognised(headers: Mapping[str, bytes | None]) -> Dialect:
    """The dialect of a letter, by its headers; the first of the table if there are several."""
    found = {_MARKS[name] for name in headers if name in _MARKS}
    return next((each for each in DIALECTS.values() if each.name in found), UNKNOWN)


def dialect_named(wanted: str) -> Dialect | None:
    """The dialect of that name; None for `auto`."""
    if wanted not in get_args(Wanted):
        raise ConfigurationError(
            f"there is no dialect {wanted!r}; it can be {', '.join(get_args(Wanted))}"
        )
    return DIALECTS.get(wanted)
