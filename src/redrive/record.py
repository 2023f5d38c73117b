"""What a handler sees: the record itself, and what redrive reads and writes around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Header names may repeat, and values may be null or any bytes: exactly what Kafka allows."""


NO_TIMESTAMP: Final = -1
"""Kafka's word for a message that has none; some clients write it."""
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether a Kafka topic can have that name."""
    return _TOPIC.fullmatch(name) is not None


_FRAME: Final = 70
"""Bytes around a message: its lengths, and the batch's own if it is alone in it."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


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
    `timestamp` is in milliseconds since 1970; None where the message has none. `data` is what
    `decode=` made of the value; the value itself where the handler has no decoder.

    A record cannot be changed: what is parked or buried is what was read. (A tuple, because one is
    made for every message: nothing in Python is made faster.)
    """

    if TYPE_CHECKING:
        data: Any

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there: `data` of a record that nobody has decoded.
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
        """Where the record is, for messages: `orders[3]@17`."""
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class Write(NamedTuple):
    """A message to be written. Without a partition, the key decides as for Java's clients."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size(self) -> int:
        """The bytes that it takes in a batch, about."""
        size = _FRAME + len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum(len(name) + len(value or b"") + 4 for name, value in self.headers)
        return size


class IdentifiedWrite(Write):
    """A message with an id of the sender's own: it is sent once."""

    id: str
