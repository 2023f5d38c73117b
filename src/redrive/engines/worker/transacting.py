"""Transacting: outputs and progress of completed prefixes, each in one Kafka transaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.errors import RedriveError
from redrive.ports import Position
from redrive.processing.notes import TOPIC, with_note
from redrive.record import Write
from redrive.threads import OnDeath, start_thread

if TYPE_CHECKING:
    from redrive.engines.worker.figures import Counting
    from redrive.engines.worker.partition import Partition
    from redrive.kafka.transactions import TransactionalProducer
    from redrive.processing.outcomes import Outcome, Report
    from redrive.processing.processor import PartitionProcessor

log: Final = logging.getLogger("redrive.worker")

EVERY: Final = 0.1
"""Seconds from one transaction of a partition to the next, at least: readers wait for its end."""
MOST: Final = 10_000
"""Records after which a transaction is begun sooner."""
_SIDE_BY_SIDE: Final = 8
_LOOK_EVERY: Final = 0.02


class Kept(NamedTuple):
    """A record's outcome that waits for its transaction."""

    offset: int
    writes: list[Write]
    outcome: Outcome | None

    @property
    def weight(self) -> int:
        """The bytes of its messages."""
        return sum(len(write.key or b"") + len(write.value or b"") for write in self.writes)


class Chunks:
    """One partition's outcomes, and its transactions one after the other."""

    def __init__(self, partition: Partition, producer: TransactionalProducer) -> None:
        self.partition = partition
        self.producer = producer
        self.kept: list[Kept] = []
        self.under_way: tuple[Future[None], Position, list[Kept], float] | None = None
        self.began = -inf
        self.joined = False
        """Whether the group's word on this worker's membership is newer than the partition."""
        self.failed = False
        self._lock = threading.Lock()

    def take(self, report: Report) -> None:
        """Keep outcomes for the next transaction."""
        news = [Kept(offset, [], None) for offset in report.done]
        news += [Kept(offset, sends, None) for offset, sends, _ in report.sent]
        news += [Kept(each.offset, [*each.writes], each) for each in report.outcomes]
        with self._lock:
            self.kept += news
            self.partition.kept += len(news)
            self.partition.kept_bytes += sum(one.weight for one in news)

    def prefix(self) -> Position | None:
        """How far a transaction could commit, if that is further than before."""
        reached = self.partition.tracker.prefix
        committed = self.partition.committed
        if committed is not None and reached <= committed.offset:
            return None
        return with_note(Position(reached), TOPIC, self.partition.topic_id)

    def cut(self, prefix: Position) -> list[Kept]:
        """Take out what belongs to a transaction up to there."""
        with self._lock:
            chunk = [one for one in self.kept if one.offset < prefix.offset]
            self.kept = [one for one in self.kept if one.offset >= prefix.offset]
        # By offset: each lane's order, and the same at every attempt.
        return sorted(chunk)

    def let_go(self, chunk: list[Kept]) -> None:
        """A transaction with these was committed."""
        with self._lock:
            self.partition.kept -= len(chunk)
            self.partition.kept_bytes -= sum(one.weight for one in chunk)


class TransactionDelivering:
    """Exactly once: what was written and the offset up to which it counts, in one transaction.

    A transaction takes a contiguous prefix and nothing else. If one does not commit, whatever came
    after it in its partition is let go of, and `on_failure` is told: the partition begins anew.
    """

    def __init__(
        self,
        counting: Counting,
        on_failure: Callable[[Partition, RedriveError], None],
        on_death: OnDeath,
    ) -> None:
        self._membership: object = None
        self._came: list[Chunks] = []
        self._counting = counting
        self._on_failure = on_failure
        self._chunks: dict[PartitionProcessor, Chunks] = {}
        self._news = threading.Event()
        self._closing = False
        self._beside = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="redrive-transaction")
        self._thread = start_thread(self._run, name="redrive-delivery", on_death=on_death)

    @property
    def refused(self) -> int:
        """None: a transaction with a refused write is taken back as a whole."""
        return 0

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return ""

    def open(self, partition: Partition, producer: TransactionalProducer | None) -> None:
        """Take up a partition."""
        if producer is None:
            raise AssertionError(f"{partition.place} has no transactional producer")
        chunks = self._chunks[partition.processor] = Chunks(partition, producer)
        self._came.append(chunks)

    def note_membership(self, membership: object) -> None:
        """Take the word of the group's consumer on its membership; the poll thread renews it.

        With one from before a partition came, its first transaction would be refused.
        """
        self._membership = membership
        while self._came:
            self._came.pop().joined = True
            self._news.set()  # where it begins is committed at once

    def forget(self, partition: Partition) -> None:
        """Let go of a partition; a transaction under way ends by itself."""
        self._chunks.pop(partition.processor, None)

    def take(self, processor: PartitionProcessor, report: Report) -> None:
        """Keep outcomes for the transaction. Their offsets count as complete: it takes all."""
        chunks = self._chunks.get(processor)
        if chunks is None:
            return
        chunks.take(report)
        processor.settle(report.offsets)
        if not self._news.is_set():
            self._news.set()

    def finish(self, partitions: list[Partition], until: float) -> None:
        """Commit what is complete of some partitions; gives up at that monotonic time."""
        mine = [
            chunks
            for each in partitions
            if (chunks := self._chunks.get(each.processor)) is not None
        ]
        while any(self._has_more(each) for each in mine):
            if monotonic() >= until or not self._thread.is_alive():
                break
            self._news.set()
            threading.Event().wait(_LOOK_EVERY / 4)

    def close(self) -> None:
        """End; transactions under way are waited for."""
        self._closing = True
        self._news.set()
        self._thread.join()
        self._beside.shutdown()

    def _has_more(self, chunks: Chunks) -> bool:
        if chunks.failed or not chunks.joined:
            return False
        return chunks.under_way is not None or chunks.prefix() is not None

    def _run(self) -> None:
        while not self._closing:
            self._news.wait(_LOOK_EVERY if self._chunks else None)
            self._news.clear()
            hurry = False
            for chunks in list(self._chunks.values()):
                self._step(chunks)
                hurry = hurry or chunks.under_way is not None or bool(chunks.kept)
            if hurry and not self._closing:
                threading.Event().wait(_LOOK_EVERY / 4)
                self._news.set()

    def _step(self, chunks: Chunks) -> None:
        if chunks.failed or not chunks.joined:
            return
        if chunks.under_way is not None:
            if not chunks.under_way[0].done():
                return
            if not self._ended(chunks):
                return
        prefix = chunks.prefix()
        if prefix is None or not self._is_time(chunks):
            return
        chunk = chunks.cut(prefix)
        writes = [write for one in chunk for write in one.writes]
        place = chunks.partition.place
        chunks.began = monotonic()
        end = self._beside.submit(chunks.producer.commit, writes, {place: prefix}, self._membership)
        end.add_done_callback(lambda _: self._news.set())
        chunks.under_way = (end, prefix, chunk, chunks.began)

    def _is_time(self, chunks: Chunks) -> bool:
        # A partition that is not read for want of room gets it by a transaction.
        many = len(chunks.kept) >= MOST or chunks.partition.paused
        return many or monotonic() - chunks.began >= EVERY

    def _ended(self, chunks: Chunks) -> bool:
        if chunks.under_way is None:
            return True
        end, prefix, chunk, began = chunks.under_way
        chunks.under_way = None
        partition = chunks.partition
        try:
            end.result()
        except RedriveError as error:
            chunks.failed = True
            self._counting.commit_failures += 1
            self._on_failure(partition, error)
            return False
        partition.committed = prefix
        chunks.let_go(chunk)
        self._counting.committing.add(monotonic() - began)
        self._counting.done(partition.processor, sum(one.outcome is None for one in chunk))
        for one in chunk:
            if one.outcome is not None:
                self._counting.ended(partition.processor, one.outcome)
        return True
