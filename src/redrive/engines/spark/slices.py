"""Slices: one range within a task, from its first record to its last commit."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING

from redrive.delivery.refusing_topics import RefusingTopics, Waiting
from redrive.delivery.transaction_buffer import Prefix, TransactionBuffer
from redrive.delivery.transactions import Transactions
from redrive.engines.spark import marks
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.task_report import SliceReport
from redrive.engines.weights import Weights, weight
from redrive.errors import PublishError, RedriveError
from redrive.kafka.admin import PATIENCE
from redrive.kafka.errors import NotAllowedError, silent
from redrive.kafka.log import Batches
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.ports import Position
from redrive.processing.outcomes.report import Outcome, Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.progress.done_beyond import METADATA_LIMIT, decode, still_at
from redrive.processing.progress.notes import ROOM
from redrive.record import Record
from redrive.tuning import (
    RANGE_SILENCE,
    RANGE_WINDOW,
    TASK_TRANSACTION_EVERY,
    TASK_TRANSACTION_RECORDS,
)

if TYPE_CHECKING:
    from redrive.engines.spark.runtime import Runtime
    from redrive.processing.order.key_gate import KeyGate


class Slice:
    """One range within a task; this one commits what is durable, whenever it is asked."""

    def __init__(
        self,
        runtime: Runtime,
        each: Range,
        start: Position,
        *,
        most_bytes: int,
        gate: KeyGate | None = None,
    ) -> None:
        """With `most_bytes` in flight nothing more is read."""
        self.range = each
        self.runtime = runtime
        self.exhausted = self.reached_end = start.offset >= each.end
        self.tracker = AckTracker(start)
        self.processor = PartitionProcessor(
            runtime.scope, each.place, self.tracker, delay=each.delay, gate=gate
        )
        self.counts: Counter[str] = Counter()
        self.committed = start
        self.trouble = ""
        """Why it cannot be read any further, if it cannot."""
        self._batches = self._read_from(start.offset)
        self._is_read = False
        self._most_bytes = most_bytes
        self._weights = Weights()
        self._reached = start.offset
        self._silent_since: float | None = None
        self._commit_at = 0.0

    @property
    def wants_records(self) -> bool:
        """Whether more should be read now."""
        if self.exhausted or self.tracker.in_flight >= RANGE_WINDOW:
            return False
        return self.bytes_in_flight < self._most_bytes

    @property
    def bytes_in_flight(self) -> int:
        """At most so many: everything from the first record that is not complete."""
        return self._weights.from_offset(self.tracker.prefix)

    @property
    def looked_through(self) -> bool:
        """Whether it was read to its end, or has in flight what it can have."""
        return self.reached_end or self.tracker.in_flight >= RANGE_WINDOW

    @property
    def finished(self) -> bool:
        """Whether all of the range is complete."""
        return self.exhausted and self.tracker.in_flight == 0

    def read(self, wait: float = 0) -> list[Record]:
        """The next records, if some are there or come within so many seconds."""
        try:
            # What has not begun to be read does not know how long to wait yet.
            records = self._batches.send(wait if self._is_read else None)
        except StopIteration:
            self.exhausted = self.reached_end = True
            self.tracker.received_up_to(self.range.end)
            return []
        except NotAllowedError:
            raise  # it is not for this range alone, nor does it pass
        except RedriveError as error:
            self.trouble = str(error)
            self.exhausted = True
            return []
        self._is_read = True
        if records:
            self._reached = records[-1].offset + 1
            self._silent_since = None
            self._weigh(records)
        else:
            self._silent_since = self._silent_since or monotonic()
            if self._silence >= PATIENCE:
                self.stop_reading()
        return records

    def read_from(self, offset: int) -> None:
        """Read from there on once more."""
        self._batches.close()
        self._batches = self._read_from(offset)
        self._weights.went_back(offset)
        self._is_read = self.exhausted = False
        self._silent_since = None

    def _read_from(self, offset: int) -> Batches:
        each = self.range
        log = self.runtime.kafka_log
        return log.batches(each.place, offset, each.end, size=RANGE_WINDOW // 4, wait=0)

    def _weigh(self, records: list[Record]) -> None:
        self._weights.add(records)

    @property
    def _silence(self) -> float:
        """Seconds for which nothing came though it was asked for."""
        return 0.0 if self._silent_since is None else monotonic() - self._silent_since

    def stop_reading(self) -> None:
        """Read nothing more."""
        if not self.exhausted and self._silence > RANGE_SILENCE:
            where = self.range.place, self._reached, self.range.end
            self.trouble = str(silent(*where, self._silence))
        self._batches.close()
        self.exhausted = True

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
            self.check_own()
            self.runtime.progress.commit({self.range.place: self.labelled(position)})
            self.committed = position

    def labelled(self, position: Position) -> Position:
        """The position as it is committed: who it was, and of which topic."""
        topic_id, run = self.range.topic_id, self.runtime.run
        return marks.labelled(position, topic_id=topic_id, run=run)

    def check_own(self) -> None:
        """See that nobody else handles the partition, where an app's order needs that."""

    @property
    def waiting(self) -> Waiting:
        """The records that wait for topics that refuse writes, of those that it keeps itself."""
        return Waiting()

    @property
    def waits_for_others(self) -> int:
        """How many records wait only for others, or until they are due, in strict order."""
        return 0

    def go_back(self) -> bool:
        """Read again what was put off, if something was; whether it does."""
        return False

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


class TransactionSlice(Slice):
    """Commits outputs and progress of a contiguous prefix together, and nothing else.

    A transaction is committed beside the work on the next one. If it fails, all that came after it
    is let go of. If writes of it are refused, another one goes up to the first record that has to
    wait for their topics. What it completed beyond the prefix when the task had to end runs again.
    """

    def __init__(
        self,
        runtime: Runtime,
        each: Range,
        start: Position,
        producer: TransactionalProducer,
        *,
        most_bytes: int,
        topics: RefusingTopics,
    ) -> None:
        """`topics` are those that refuse writes, for all ranges of the task."""
        super().__init__(runtime, each, start, most_bytes=most_bytes)
        self._done_before = decode(start)
        self._topics = topics
        self._buffer = TransactionBuffer(self.processor, producer.room, topics, runtime.clock)
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="redrive-transaction")
        self._transactions: Transactions[Prefix] = Transactions(
            producer,
            each.place,
            at=self._at,
            topics=topics,
            sent_to=runtime.scope.sent_to,
            submit=self._beside.submit,
            completed=self._completed,
        )
        self._end = start.offset
        """Where the transactions end that were begun: what there was no room for is part of it."""
        self._begin()

    def _begin(self) -> None:
        self._received = 0
        self._weight = self._written = 0
        """Of what was read, and of what is to be written."""
        self._begun = monotonic()

    @property
    def wants_records(self) -> bool:
        """A transaction that is full, or old enough, has to end before the next begins."""
        full = (
            self._received >= TASK_TRANSACTION_RECORDS
            or self._weight + self._written >= self._most_bytes
            or monotonic() - self._begun >= TASK_TRANSACTION_EVERY
        )
        return not self.exhausted and not (full and self._received)

    def _weigh(self, records: list[Record]) -> None:
        self._received += len(records)
        self._weight += weight(records)

    def add(self, processor: PartitionProcessor, report: Report) -> None:
        """Keep the outcomes for the transaction. Their offsets count as complete: it takes all."""
        self._written += self._buffer.add(report)
        processor.settle(report.offsets)

    def commit(self, *, every: float, last: bool = False) -> None:
        """Commit, once everything of this transaction has ended."""
        del every  # a transaction ends when it is full, or after TASK_TRANSACTION_EVERY
        free = self._finish_commit(wait=last)
        if not last and (self.tracker.in_flight or self.wants_records):
            return
        if free:
            self._start_commit()
        if last:
            self._finish_commit(wait=True)

    @property
    def waiting(self) -> Waiting:
        """The records that wait for topics; those behind them run again with them."""
        hold = self._buffer.hold
        if hold is None:
            return Waiting()
        return Waiting(hold.records, hold.records, self._topics.reasons(hold.topics))

    def _start_commit(self) -> None:
        position = self.tracker.position()
        if position is not None:
            self._end = position.offset
            self._go_on()
        self._begin()

    def _go_on(self) -> None:
        """Commit the next prefix, until the transaction is where it is to end."""
        end = self._buffer.reachable(self._end)
        if end != self.committed.offset:
            self._transactions.begin(self._buffer.cut(end))

    def _finish_commit(self, *, wait: bool) -> bool:
        """Whether no commit is under way any more; an error of it is raised."""
        while self._transactions.under_way is not None:
            if not wait and not self._transactions.ended:
                return False
            refused = self._transactions.settle()
            if refused is not None:
                self._put_back(refused)
            self._go_on()
        return True

    def _completed(self, position: Position, prefix: Prefix) -> None:
        self.committed = position
        self._buffer.let_go()
        outcomes = prefix.outcomes
        self.complete(prefix.records - len(outcomes))
        for outcome in outcomes:
            self.complete(outcome)

    def _put_back(self, error: PublishError) -> None:
        self._buffer.put_back(error)
        if self._buffer.hold is not None:
            self.stop_reading()

    def _at(self, offset: int) -> Position:
        # Beyond it is what was done by a run without transactions: never what this one has done.
        position = still_at(offset, self._done_before, METADATA_LIMIT - ROOM)
        return self.labelled(position)

    def close(self) -> None:
        """Let go of the producer, once it has nothing to do any more."""
        self._beside.shutdown()
