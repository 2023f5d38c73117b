"""Slices: one range within a task, from its first record to its last commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.engines.spark import marks
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.reports import SliceReport
from redrive.engines.weights import Weights, weight
from redrive.errors import RedriveError
from redrive.kafka.admin import PATIENCE
from redrive.kafka.errors import silent
from redrive.kafka.transactions import TransactionalProducer
from redrive.ports import Position
from redrive.processing.acks import AckTracker
from redrive.processing.done_beyond import METADATA_LIMIT
from redrive.processing.notes import ROOM
from redrive.processing.outcomes import Outcome, Report, Sent
from redrive.processing.processor import PartitionProcessor
from redrive.record import Record, TopicPartition

if TYPE_CHECKING:
    from redrive.engines.spark.runtime import Runtime

WINDOW: Final = 4_000
"""The most records of a range in flight."""
_SILENCE: Final = 1.0
"""Seconds without a record after which a range that ends unread says so."""
TRANSACTION: Final = 20_000
"""The most records of one transaction."""
TRANSACTION_EVERY: Final = 1.0
"""Seconds after which a transaction is committed, if it is not full before."""


class Slice:
    """One range within a task; this one commits what is durable, whenever it is asked."""

    def __init__(self, runtime: Runtime, each: Range, start: Position, *, most_bytes: int) -> None:
        """With `most_bytes` in flight nothing more is read."""
        self.range = each
        self.runtime = runtime
        self.exhausted = start.offset >= each.end
        self.tracker = AckTracker()
        self.tracker.assign(start)
        self.processor = PartitionProcessor(
            runtime.scope, each.place, self.tracker, delay=each.delay
        )
        self.counts: Counter[str] = Counter()
        self.committed = start
        self.trouble = ""
        """Why it cannot be read any further, if it cannot."""
        self._lots = runtime.log.lots(each.place, start.offset, each.end, size=WINDOW // 4, wait=0)
        self._most_bytes = most_bytes
        self._weights = Weights()
        self._reached = start.offset
        self._silent_since: float | None = None
        self._commit_at = 0.0

    @property
    def wants_records(self) -> bool:
        """Whether more should be read now."""
        if self.exhausted or self.tracker.in_flight >= WINDOW:
            return False
        return self._weights.from_offset(self.tracker.prefix) < self._most_bytes

    @property
    def finished(self) -> bool:
        """Whether all of the range is complete."""
        return self.exhausted and self.tracker.in_flight == 0

    def read(self) -> list[Record]:
        """The next records, if some are there; other ranges of the task do not wait for them."""
        try:
            records = next(self._lots, None)
        except RedriveError as error:
            self.trouble = str(error)
            self.exhausted = True
            return []
        if records is None:
            self.exhausted = True
            self.tracker.received_up_to(self.range.end)
            return []
        if records:
            self._reached = records[-1].offset + 1
            self._silent_since = None
            self._weights.add(records)
        else:
            self._silent_since = self._silent_since or monotonic()
            if self._silence >= PATIENCE:
                self.stop_reading()
        return records

    @property
    def _silence(self) -> float:
        """Seconds for which nothing came though it was asked for."""
        return 0.0 if self._silent_since is None else monotonic() - self._silent_since

    def stop_reading(self) -> None:
        """Read nothing more."""
        if not self.exhausted and self._silence > _SILENCE:
            where = self.range.place, self._reached, self.range.end
            self.trouble = str(silent(*where, self._silence))
        if isinstance(self._lots, Iterator) and hasattr(self._lots, "close"):
            self._lots.close()
        self.exhausted = True

    def take(self, processor: PartitionProcessor, report: Report) -> None:
        """Take note of what came of records: nothing counts before it is durable."""

    def complete(self, ended: Outcome | int) -> None:
        """Count an outcome that is durable, or so many records that are done."""
        if isinstance(ended, int):
            self.counts["done"] += ended
        else:
            self.counts[ended.kind] += 1
            self.runtime.scope.causes.outcome(ended)

    def commit(self, *, every: float, last: bool = False) -> None:
        """Commit what is complete, if it is time."""
        now = monotonic()
        if not last and now < self._commit_at:
            return
        self._commit_at = now + every
        position = self.tracker.position(METADATA_LIMIT - ROOM)
        if position is not None and position != self.committed:
            self.runtime.progress.commit(self._labelled(position))
            self.committed = position

    def _labelled(self, position: Position) -> dict[TopicPartition, Position]:
        each, run = self.range, self.runtime.run
        return {each.place: marks.labelled(position, topic_id=each.topic_id, run=run)}

    def report(self) -> SliceReport:
        """What became of the range."""
        each = self.range
        return SliceReport(
            each.topic,
            each.partition,
            each.start,
            self.committed.offset,
            each.delay,
            dict(self.counts),
            self.trouble,
        )

    def close(self) -> None:
        """Let go of what it holds."""


class _Commit(NamedTuple):
    """A transaction that is being committed, and what will be complete by it."""

    end: Future[None]
    prefix: Position
    done: int
    ended: list[Outcome]


class TransactionSlice(Slice):
    """Commits outputs and progress of a contiguous prefix together, and nothing else.

    A transaction is committed beside the work on the next one. If it fails, all that came after it
    is let go of. What was completed beyond the prefix when the task had to end runs again.
    """

    def __init__(
        self,
        runtime: Runtime,
        each: Range,
        start: Position,
        producer: TransactionalProducer,
        *,
        most_bytes: int,
    ) -> None:
        super().__init__(runtime, each, Position(start.offset), most_bytes=most_bytes)
        self._producer = producer
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="redrive-transaction")
        self._under_way: _Commit | None = None
        self._begin()

    def _begin(self) -> None:
        self._outcomes: list[Outcome] = []
        self._sent: list[Sent] = []
        self._done: list[int] = []
        self._received = 0
        self._weight = 0
        """Of what was read, and of what is to be written."""
        self._begun = monotonic()

    @property
    def wants_records(self) -> bool:
        """A transaction that is full, or old enough, has to end before the next begins."""
        full = (
            self._received >= TRANSACTION
            or self._weight >= self._most_bytes
            or monotonic() - self._begun >= TRANSACTION_EVERY
        )
        return not self.exhausted and not (full and self._received)

    def read(self) -> list[Record]:
        """The next records."""
        records = super().read()
        self._received += len(records)
        self._weight += weight(records)
        return records

    def take(self, processor: PartitionProcessor, report: Report) -> None:
        """Keep the outcomes for the transaction. Their offsets count as complete: it takes all."""
        self._done += report.done
        self._sent += report.sent
        self._outcomes += report.outcomes
        sent = (sends for _, sends, _ in report.sent)
        written = chain(sent, (each.writes for each in report.outcomes))
        self._weight += sum(len(write.value or b"") for writes in written for write in writes)
        processor.settle(report.offsets)

    def commit(self, *, every: float, last: bool = False) -> None:
        """Commit, once everything of this transaction has ended."""
        del every  # a transaction ends when it is full, or after TRANSACTION_EVERY
        if not last and (self.tracker.in_flight or self.wants_records):
            return
        if self._finish_commit(wait=last):
            self._start_commit()
        if last:
            self._finish_commit(wait=True)

    def _start_commit(self) -> None:
        position = self.tracker.position()
        if position is None or position.offset == self.committed.offset:
            self._begin()
            return
        prefix = Position(position.offset)
        end = prefix.offset
        ended = [each for each in self._outcomes if each.offset < end]
        sent = [(offset, sends) for offset, sends, _ in self._sent if offset < end]
        # By offset: each lane's order, whatever became of its records.
        whose = sorted([*sent, *((each.offset, each.writes) for each in ended)], key=itemgetter(0))
        writes = [write for _, written in whose for write in written]
        done = len(sent) + sum(offset < end for offset in self._done)
        committing = self._beside.submit(self._producer.commit, writes, self._labelled(prefix))
        self._under_way = _Commit(committing, prefix, done, ended)
        self._begin()

    def _finish_commit(self, *, wait: bool) -> bool:
        """Whether no commit is under way any more; an error of it is raised."""
        under_way = self._under_way
        if under_way is None:
            return True
        if not wait and not under_way.end.done():
            return False
        self._under_way = None
        under_way.end.result()
        self.committed = under_way.prefix
        self.counts["done"] += under_way.done
        for outcome in under_way.ended:
            self.complete(outcome)
        return True

    def close(self) -> None:
        """Let go of the producer, once it has nothing to do any more."""
        self._beside.shutdown()
