"""Writers: outcomes become durable, and progress with them; flushed, or in a Kafka transaction."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from redrive.errors import PublishError
from redrive.kafka.transactions import TransactionalProducer
from redrive.messages import Messages
from redrive.ports import Handover, Position, Progress, Publisher
from redrive.processing.causes import Seen
from redrive.record import TopicPartition

TRANSACTION: Final = 20_000
"""The most rows of one transaction."""
MOST_BYTES: Final = 32_000_000
"""Of rows that are not durable yet: those of one transaction, or written and not settled."""
_POLL: Final = 0.1


@dataclass
class Chunk:
    """Rows that follow each other, with all that is to be written for them."""

    end: int
    """The offset after the last of them, gaps included."""
    writes: Messages = field(default_factory=Messages)
    owners: list[int] = field(default_factory=list)
    """For each write the offset of its row."""
    counts: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    weight: int = 0
    """Bytes that its rows have in memory, about."""
    causes: list[Seen] = field(default_factory=list)
    """Why some of them were parked and buried."""


class Writer(Protocol):
    """Makes chunks durable, one after the other."""

    committed: int
    counts: Counter[str]
    causes: list[Seen]

    def put(self, chunk: Chunk) -> None:
        """Take the next chunk; it may become durable later."""
        ...

    def finish(self) -> None:
        """Make all of it durable, and commit the progress."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class FlushWriter:
    """What is written is flushed before the progress is committed."""

    def __init__(
        self,
        publisher: Publisher,
        progress: Progress,
        place: TopicPartition,
        *,
        start: int,
        every: float,
        at: Callable[[int], Position] = Position,
    ) -> None:
        """What is committed for an offset is said by `at`."""
        self.committed = start
        self.counts: Counter[str] = Counter()
        self.causes: list[Seen] = []
        self._publisher = publisher
        self._progress = progress
        self._place = place
        self._at = at
        self._every = every
        self._commit_at = monotonic() + every
        self._waiting: deque[tuple[Chunk, Handover | None]] = deque()
        self._weight = 0

    def put(self, chunk: Chunk) -> None:
        """Hand it over; now and then wait for all, and commit."""
        handed = self._publisher.hand_over(chunk.writes) if chunk.writes else None
        self._waiting.append((chunk, handed))
        if handed is not None:
            handed.poll(0)
        self._weight += chunk.weight
        if self._weight >= MOST_BYTES:
            self._commit(wait=True)
        elif monotonic() >= self._commit_at:
            self._commit(wait=False)

    def finish(self) -> None:
        """Wait for what is on its way; commit up to the first write that was refused."""
        self._commit(wait=True)

    def _commit(self, *, wait: bool) -> None:
        """Commit what is durable; while there is more to do, the rest is not waited for."""
        end = self.committed
        try:
            while self._waiting:
                chunk, handed = self._waiting[0]
                if not wait and handed is not None and handed.outstanding:
                    break
                self._waiting.popleft()
                self._weight -= chunk.weight
                self._settle(chunk, handed)
                end = chunk.end
                self.counts += chunk.counts
                self.causes += chunk.causes
        except PublishError as error:
            end = max(end, _before_refused(chunk, error))
            raise
        finally:
            if end != self.committed:
                self._progress.commit({self._place: self._at(end)})
                self.committed = end
            self._commit_at = monotonic() + self._every

    def close(self) -> None:
        """The publisher stays: it is the process's."""

    def _settle(self, chunk: Chunk, handed: Handover | None) -> None:
        if handed is None:
            return
        while handed.outstanding:
            handed.poll(_POLL)
        error = handed.error()
        if error is None:
            return
        if error.outage:
            raise error
        # Brokers refuse a batch for one message that is too large: by themselves others may pass.
        refused = {id(write) for write in error.refused}
        self._publisher.publish([write for write in chunk.writes if id(write) in refused])


class TransactionWriter:
    """Writes and progress of contiguous rows in one transaction, committed beside the work."""

    def __init__(
        self,
        producer: TransactionalProducer,
        place: TopicPartition,
        *,
        start: int,
        at: Callable[[int], Position] = Position,
    ) -> None:
        self.committed = start
        self.counts: Counter[str] = Counter()
        self.causes: list[Seen] = []
        self._producer = producer
        self._place = place
        self._at = at
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="redrive-transaction")
        self._under_way: tuple[Chunk, Future[None]] | None = None
        self._next: Chunk | None = None

    def put(self, chunk: Chunk) -> None:
        """Add it to the next transaction, which is committed once it is full."""
        waiting = self._next
        if waiting is None:
            self._next = chunk
        else:
            waiting.end = chunk.end
            waiting.writes.extend(chunk.writes)
            waiting.counts += chunk.counts
            waiting.causes += chunk.causes
            waiting.rows += chunk.rows
            waiting.weight += chunk.weight
        full = self._next is not None and (
            self._next.rows >= TRANSACTION or self._next.weight >= MOST_BYTES
        )
        if full:
            self._commit()

    def finish(self) -> None:
        """Commit the rest, and wait for it."""
        self._commit()
        self._wait()

    def close(self) -> None:
        """Let go of the thread, once it has nothing to do any more."""
        self._beside.shutdown()

    def _commit(self) -> None:
        self._wait()
        chunk, self._next = self._next, None
        if chunk is None or chunk.end == self.committed:
            return
        position = {self._place: self._at(chunk.end)}
        committing = self._beside.submit(self._producer.commit, chunk.writes, position)
        self._under_way = (chunk, committing)

    def _wait(self) -> None:
        if self._under_way is None:
            return
        chunk, committing = self._under_way
        self._under_way = None
        committing.result()
        self.committed = chunk.end
        self.counts += chunk.counts
        self.causes += chunk.causes


def _before_refused(chunk: Chunk, error: PublishError) -> int:
    """The rows before the first whose write was refused are durable: those end here."""
    refused = {id(write) for write in error.refused}
    owners = [
        owner
        for write, owner in zip(chunk.writes, chunk.owners, strict=True)
        if id(write) in refused
    ]
    return min(owners, default=0)
