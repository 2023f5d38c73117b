"""Writers: outcomes become durable, and progress with them; flushed, or in a Kafka transaction."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Protocol

from redrive.delivery.transactions import Transactions
from redrive.engines.spark.frames.chunks import Chunk
from redrive.engines.spark.frames.refused_rows import RefusedRows
from redrive.errors import PublishError
from redrive.kafka.room import Room
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.ports import Handover, Position, Progress, Publisher
from redrive.processing.outcomes.causes import Tally
from redrive.record import TopicPartition
from redrive.tuning import FRAME_BYTES, FRAME_POLL


class Writer(Protocol):
    """Makes chunks durable, one after the other."""

    room: Room
    """What one chunk should not be more than."""
    committed: int
    counts: Counter[str]

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
        refused_rows: RefusedRows,
        tally: Tally,
        at: Callable[[int], Position] = Position,
    ) -> None:
        """What is committed for an offset comes from `at`; why rows failed goes to `tally`."""
        self.room = Room()
        self.committed = start
        self.counts: Counter[str] = Counter()
        self._tally = tally
        self._publisher = publisher
        self._progress = progress
        self._place = place
        self._at = at
        self._every = every
        self._refused_rows = refused_rows
        self._commit_at = monotonic() + every
        self._waiting: deque[tuple[Chunk, Handover | None]] = deque()
        self._weight = 0

    def put(self, chunk: Chunk) -> None:
        """Hand it over; now and then wait for all, and commit.

        Also while there is more to do: a producer says how much it has under way, not whose it is.
        """
        if self._refused_rows.waiting.records:
            return
        chunk = self._refused_rows.writable(chunk)
        handed = self._publisher.hand_over(chunk.writes) if chunk.writes else None
        self._waiting.append((chunk, handed))
        if handed is not None:
            handed.poll(0)
        self._weight += chunk.weight
        if self._weight >= FRAME_BYTES or monotonic() >= self._commit_at:
            self.finish()

    def finish(self) -> None:
        """Wait for what is on its way; commit up to the first row that has to wait."""
        end = self.committed
        try:
            while self._waiting:
                chunk, handed = self._waiting.popleft()
                self._weight -= chunk.weight
                durable = self._settled(chunk, handed)
                end = max(end, durable.end)
                self.counts += durable.counts
                _tell(self._tally, durable)
                if durable.end < chunk.end:
                    self._waiting.clear()  # what is behind a row that waits runs again with it
        finally:
            if end != self.committed:
                self._progress.commit({self._place: self._at(end)})
                self.committed = end
            self._commit_at = monotonic() + self._every

    def close(self) -> None:
        """The publisher stays: it is the process's."""

    def _settled(self, chunk: Chunk, handed: Handover | None) -> Chunk:
        """What of a chunk is durable."""
        if handed is None:
            return chunk
        while handed.outstanding:
            handed.poll(FRAME_POLL)
        error = handed.error()
        if error is not None and not error.outage:
            # Brokers refuse a batch for one message that is too large: by themselves others pass.
            error = self._try(chunk, {id(write) for write in error.refused})
        while error is not None:
            known = {id(write) for write in chunk.writes}
            chunk = self._refused_rows.without(chunk, error)
            # Those that are buried instead have dead letters now.
            error = self._try(chunk, {id(write) for write in chunk.writes} - known)
        return chunk

    def _try(self, chunk: Chunk, these: set[int]) -> PublishError | None:
        try:
            self._publisher.publish([write for write in chunk.writes if id(write) in these])
        except PublishError as error:
            return error
        return None


class TransactionWriter:
    """Writes and progress of contiguous rows in one transaction, committed beside the work."""

    def __init__(
        self,
        producer: TransactionalProducer,
        place: TopicPartition,
        *,
        start: int,
        refused_rows: RefusedRows,
        tally: Tally,
        at: Callable[[int], Position] = Position,
    ) -> None:
        """As for those that are flushed."""
        self.room = producer.room
        self.committed = start
        self.counts: Counter[str] = Counter()
        self._tally = tally
        self._refused_rows = refused_rows
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="redrive-transaction")
        self._transactions: Transactions[Chunk] = Transactions(
            producer,
            place,
            at=at,
            topics=refused_rows.topics,
            submit=self._beside.submit,
            completed=self._completed,
        )
        self._next: Chunk | None = None

    def put(self, chunk: Chunk) -> None:
        """Add it to the next transaction; one that would be too large is committed before."""
        if self._refused_rows.waiting.records:
            return
        chunk = self._refused_rows.writable(chunk)
        waiting = self._next
        if waiting is not None:
            messages = len(waiting.writes) + len(chunk.writes)
            if self.room.takes(messages, waiting.weight + chunk.weight):
                waiting.extend(chunk)
                return
            self._commit()
        self._next = chunk

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
        if chunk is not None:
            self._begin(chunk)

    def _begin(self, chunk: Chunk) -> None:
        if chunk.end == self.committed or chunk.end > self._refused_rows.end:
            return  # what is behind a row that waits runs again with it
        self._transactions.begin(chunk)

    def _wait(self) -> None:
        while (chunk := self._transactions.under_way) is not None:
            refused = self._transactions.settle()
            if refused is not None:
                self._begin(self._refused_rows.without(chunk, refused))

    def _completed(self, _: Position, chunk: Chunk) -> None:
        self.committed = chunk.end
        self.counts += chunk.counts
        _tell(self._tally, chunk)


def _tell(tally: Tally, chunk: Chunk) -> None:
    for outcome in chunk.outcomes:
        tally.outcome(outcome)
