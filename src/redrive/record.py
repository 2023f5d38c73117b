"""What a handler sees: the record itself, and what redrive reads and writes around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Header names may repeat, and values may be null or any bytes: exactly what Kafka allows."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(slots=True, eq=False)
class Record:
    """One Kafka message.

    In a handler, `topic`, `partition`, `offset` and `timestamp` are always those of the record's
    origin, at the tenth attempt as at the first; where it waited in between is in `ctx.envelope`.
    """

    topic: str
    partition: int = 0
    offset: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    """Milliseconds since 1970; None where the message has none."""
    data: Any = field(default=None, repr=False)
    """What `decode=` made of the value; the value itself where the handler has no decoder."""

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
