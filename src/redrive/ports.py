"""What redrive needs from the outside, as protocols.

Each has an implementation on Kafka (`redrive.kafka`) and one in memory (`redrive.testing`); one
contract suite runs against both (`tests/contract`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from redrive.errors import PublishError, RedriveError
from redrive.record import Record, TopicPartition, Write


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def was_set(self) -> int:
        """By how many milliseconds it was set in total: forward, or back if negative.

        Without them time passes evenly: durations are measured with `clock.steady`.
        """
        ...


class Handover(Protocol):
    """Messages in flight."""

    @property
    def outstanding(self) -> int:
        """0 once all of them are durable or refused; other messages in flight may count, too."""
        ...

    def poll(self, seconds: float) -> None:
        """Let messages be delivered; returns when something was, or after that time."""
        ...

    def error(self) -> PublishError | None:
        """Which were refused, if any; for use once none is outstanding."""
        ...


class Publisher(Protocol):
    """Writes messages."""

    @property
    def not_allowed(self) -> RedriveError | None:
        """The missing permission that a write ran into, if any: it ends the run."""
        ...

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> Handover:
        """Begin to write all of them, in order per partition, and return at once.

        With `alone`, each is judged by itself: brokers refuse a whole batch for one of its
        messages. They are also separate from what else is in flight, which neither waits for
        them nor counts.
        """
        ...

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them, in order per partition; when this returns they are durable.

        Raises PublishError naming the first that was refused; others may have been written.
        """
        ...

    def refusing(self, topics: Collection[str]) -> dict[str, PublishError]:
        """Which of these topics accept nothing at all now, and why: checked without writing.

        Covers topics that are missing, not allowed or without a leader; not whether a topic accepts
        a particular message. BrokerError if nobody answers.
        """
        ...


class Owner(Protocol):
    """Writes messages, all or nothing, until somebody else takes over what it owns."""

    def commit(self, writes: Sequence[Write], positions: Mapping[TopicPartition, Position]) -> None:
        """Write all of them and commit the progress, in one transaction.

        FencedError if somebody has taken over; PublishError names those that were refused.
        """
        ...


class Log(Protocol):
    """Reads messages: committed ones only, never past an open transaction."""

    def names(self, prefix: str = "") -> list[str]:
        """The topics whose names begin with that."""
        ...

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if it does not exist."""
        ...

    def topic_id(self, topic: str) -> str:
        """The id that tells a recreated topic from the one before."""
        ...

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first readable offset, and the end: the offset after the last readable one."""
        ...

    def read(self, partition: TopicPartition, start: int, end: int) -> list[Record]:
        """The records with start <= offset < end. Offsets may have gaps, also at the end."""
        ...

    def batches(self, partition: TopicPartition, start: int, end: int) -> Iterator[list[Record]]:
        """The same as they arrive, so that a large range need not be held in memory.

        A batch may be empty.
        """
        ...

    def settle(self, partition: TopicPartition) -> None:
        """Wait until all that was written so far can be read: until no older transaction is open.

        One that is committed shows in some of its partitions a little before it does in others.
        """
        ...


class Position(NamedTuple):
    """Progress in one partition: the next offset to run, and what is already done beyond it."""

    offset: int
    metadata: str = ""


class Progress(Protocol):
    """The committed offsets of an app's consumer group."""

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The committed offsets; partitions without progress are left out."""
        ...

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Durable when this returns."""
        ...


class TopicState(NamedTuple):
    """A topic as it is."""

    partitions: int
    replication: int
    config: Mapping[str, str]
    """Its settings; empty if this user may not read them."""


class Topics(Protocol):
    """Describes and changes topics."""

    def describe(self, names: Collection[str]) -> dict[str, TopicState]:
        """The topics that exist; missing ones are left out."""
        ...

    def create(
        self, name: str, partitions: int, config: Mapping[str, str], replication: int | None = None
    ) -> None:
        """Create one. Without `replication`, with the broker's default."""
        ...

    def grow(self, name: str, partitions: int) -> None:
        """Raise the number of partitions."""
        ...

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Change these settings, and leave the others as they are."""
        ...
