"""What a handler sees: the record itself, and what redrive reads and writes around it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Header names may repeat, and values may be null or any bytes: exactly what Kafka allows."""


NO_TIMESTAMP: Final = -1
"""Kafka's value for a message without a timestamp; some clients write it."""
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether a Kafka topic can have that name."""
    return _TOPIC.fullmatch(name) is not None


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def partitions_of(counts: Mapping[str, int]) -> list[TopicPartition]:
    """All partitions of topics that have so many."""
    return [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]


class _Fields(NamedTuple):
    topic: str
    partition: int = 0
    offset: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


class Record(_Fields):
    """One Kafka message: topic, partition, offset, key, value, headers, timestamp and `data`.

    In a handler, `topic`, `partition`, `offset` and `timestamp` are always those of the record's
    origin, at the tenth attempt as at the first; where it waited in between is in `ctx.envelope`.
    `timestamp` is in milliseconds since 1970, or None if the message has none. `data` is what
    `decode=` made of the value, or the value itself if the handler has no decoder.

    A record cannot be changed: what is parked or buried is what was read. (A tuple, because one is
    created for every message: nothing in Python is created faster.)
    """

    if TYPE_CHECKING:
        data: Any

    def __getattr__(self, name: str) -> Any:
        # Only called for missing attributes: `data` of a record that has not been decoded.
        if name == "data":
            return self.value
        raise AttributeError(name)

    def header(self, name: str) -> bytes | None:
        """The last header of that name, as Kafka's own clients read it."""
        for header_name, value in reversed(self.headers):
            if header_name == name:
                return value
        return None

    @property
    def place(self) -> str:
        """Where the record is, for log lines and errors: `orders[3]@17`."""
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def weight(self) -> int:
        """Bytes of key, value and headers: what keeping it costs."""
        return self.size + sum(len(name) + len(value or b"") for name, value in self.headers)


class Write(NamedTuple):
    """A message to be written. Without a partition, the key decides, as in Java's clients."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class IdentifiedWrite(Write):
    """A message with an id that the sender chose: it is sent once."""

    id: str


def payload(messages: Sequence[tuple[Any, ...]], key: int) -> int:
    """The bytes of keys, values and headers, of tuples that have these three from `key` on."""
    keys, values, headers = (map(itemgetter(key + n), messages) for n in range(3))
    size = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
    for each in filter(None, headers):
        size += sum(len(name) + len(value or b"") for name, value in each)
    return size
