"""TransactionThread: outputs and progress of completed prefixes, each in one Kafka transaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redrive.delivery.refusing_topics import RefusingTopics
from redrive.delivery.transaction_buffer import Prefix, TransactionBuffer
from redrive.delivery.transactions import Transactions
from redrive.errors import RedriveError
from redrive.threads import Looking, OnDeath, start_thread
from redrive.tuning import (
    TRANSACTION_EVERY,
    TRANSACTION_LOOK_EVERY,
    TRANSACTION_SOONER,
    TRANSACTIONS_SIDE_BY_SIDE,
)

if TYPE_CHECKING:
    from redrive.engines.worker.counting import Counting
    from redrive.engines.worker.delivery_thread import Meanwhile
    from redrive.engines.worker.partition import Partition
    from redrive.kafka.transactional_producer import TransactionalProducer
    from redrive.ports import Clock, Position, Publisher
    from redrive.processing.outcomes.report import Report
    from redrive.processing.processor import PartitionProcessor

log: Final = logging.getLogger("redrive.worker")


class PartitionTransactions:
    """One partition: what it keeps, and its transactions."""

    def __init__(
        self, partition: Partition, buffer: TransactionBuffer, transactions: Transactions[Prefix]
    ) -> None:
        self.partition = partition
        self.buffer = buffer
        self.transactions = transactions
        self.joined = False
        """Whether the group's word on this worker's membership is newer than the partition."""
        self.failed = False

    def prefix(self) -> int | None:
        """How far a transaction could commit, if that is further than before."""
        reached = self.buffer.reachable(self.partition.tracker.prefix)
        committed = self.partition.committed
        return None if committed is not None and reached <= committed.offset else reached


class TransactionThread:
    """Exactly once: what was written and the offset up to which it counts, in one transaction.

    A transaction takes a contiguous prefix and nothing else. If writes of it are refused it is
    taken back, and the next one goes up to the first record that has to wait for their topics. If
    one does not commit for another reason, whatever came after it in its partition is let go of,
    and `on_failure` is called: the partition starts again.
    """

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        counting: Counting,
        on_death: OnDeath,
        sent_to: Collection[str],
        *,
        on_failure: Callable[[Partition, RedriveError], None],
    ) -> None:
        """The publisher is only asked which topics take writes."""
        self._topics = RefusingTopics(publisher.refusing, clock)
        self._clock = clock
        self._sent_to = sent_to
        self._membership: object = None
        self._came: list[PartitionTransactions] = []
        self._under_way: set[Future[None]] = set()
        self._counting = counting
        self._on_failure = on_failure
        self._partitions: dict[PartitionProcessor, PartitionTransactions] = {}
        self._news = threading.Event()
        self._closing = False
        self._beside = ThreadPoolExecutor(
            TRANSACTIONS_SIDE_BY_SIDE, thread_name_prefix="redrive-transaction"
        )
        self._thread = start_thread(self._run, name="redrive-delivery", on_death=on_death)

    @property
    def refused(self) -> int:
        """How many outcomes could not be written, and wait to be tried again."""
        return sum(each.buffer.refused for each in list(self._partitions.values()))

    @property
    def waiting(self) -> int:
        """The same, with those that wait for them."""
        return sum(each.buffer.waiting for each in list(self._partitions.values()))

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return self._topics.reason

    def open(self, partition: Partition, producer: TransactionalProducer | None) -> None:
        """Take up a partition."""
        if producer is None:
            raise AssertionError(f"{partition.place} has no transactional producer")
        buffer = TransactionBuffer(partition.processor, producer.room, self._topics, self._clock)
        transactions: Transactions[Prefix] = Transactions(
            producer,
            partition.place,
            at=partition.at,
            topics=self._topics,
            sent_to=self._sent_to,
            submit=self._submit,
            completed=lambda position, prefix: self._completed(each, position, prefix),
        )
        partition.buffer = buffer
        each = self._partitions[partition.processor] = PartitionTransactions(
            partition, buffer, transactions
        )
        self._came.append(each)

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
        self._partitions.pop(partition.processor, None)

    def add(self, processor: PartitionProcessor, report: Report) -> None:
        """Keep outcomes for the transaction. Their offsets count as complete: it takes all."""
        each = self._partitions.get(processor)
        if each is None:
            return
        each.buffer.add(report)
        processor.settle(report.offsets)
        if not self._news.is_set():
            self._news.set()

    def finish(self, partitions: list[Partition], until: float, meanwhile: Meanwhile) -> None:
        """Commit what is complete of some partitions; gives up at that monotonic time."""
        mine = [self._partitions.get(each.processor) for each in partitions]
        looking = Looking(meanwhile, TRANSACTION_LOOK_EVERY / 4)
        while any(self._has_more(each) for each in mine if each is not None):
            if monotonic() >= until or not self._thread.is_alive():
                break
            self._news.set()
            threading.Event().wait(looking.seconds)
            looking()

    def close(self, seconds: float) -> bool:
        """End, once no transaction is under way any more; whether that was within the time."""
        self._closing = True
        self._news.set()
        # First: it would begin another one, or take a cancelled one for ended.
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        self._beside.shutdown(wait=False, cancel_futures=True)
        _, late = wait(self._under_way, seconds)
        return not late

    def _has_more(self, each: PartitionTransactions) -> bool:
        if each.failed or not each.joined:
            return False
        return each.transactions.under_way is not None or each.prefix() is not None

    def _run(self) -> None:
        while not self._closing:
            self._news.wait(TRANSACTION_LOOK_EVERY if self._partitions else None)
            self._news.clear()
            hurry = False
            for each in list(self._partitions.values()):
                self._step(each)
                hurry = hurry or self._will_go_on(each)
            if hurry and not self._closing:
                threading.Event().wait(TRANSACTION_LOOK_EVERY / 4)
                self._news.set()

    def _will_go_on(self, each: PartitionTransactions) -> bool:
        """Whether there will soon be something to do."""
        if each.failed:
            return False
        waits = each.buffer.waits and each.prefix() is None
        return each.transactions.under_way is not None or bool(each.buffer.records and not waits)

    def _step(self, each: PartitionTransactions) -> None:
        if each.failed or not each.joined:
            return
        if each.transactions.under_way is not None and (
            not each.transactions.ended or not self._settled(each)
        ):
            return
        hold = each.buffer.hold
        each.buffer.waits = hold is not None and self._topics.until(hold.topics) is not None
        prefix = each.prefix()
        if prefix is not None and self._is_time(each):
            each.transactions.begin(each.buffer.cut(prefix), self._membership)

    def _submit(self, *call: Any) -> Future[None]:
        end = self._beside.submit(*call)
        self._under_way.add(end)
        end.add_done_callback(self._under_way.discard)
        end.add_done_callback(lambda _: self._news.set())
        return end

    def _is_time(self, each: PartitionTransactions) -> bool:
        # A partition that is not read for want of room gets it by a transaction.
        many = each.buffer.records >= TRANSACTION_SOONER or each.partition.paused
        soon = many or each.buffer.in_small_parts
        return soon or monotonic() - each.transactions.began >= TRANSACTION_EVERY

    def _settled(self, each: PartitionTransactions) -> bool:
        """Note how a transaction has ended; whether the partition goes on."""
        try:
            refused = each.transactions.settle()
        except RedriveError as error:
            each.failed = True
            self._counting.commit_failures += 1
            self._on_failure(each.partition, error)
            return False
        if refused is not None:
            each.buffer.put_back(refused)
        return True

    def _completed(self, each: PartitionTransactions, position: Position, prefix: Prefix) -> None:
        processor = each.partition.processor
        each.partition.committed = each.partition.acknowledged = position
        each.buffer.let_go()
        holds = [one.buffer.hold for one in list(self._partitions.values())]
        # A topic that refuses others, of another partition say, is still looked at for them.
        held = [hold.topics for hold in holds if hold is not None]
        self._topics.taken(prefix.topics.difference(*held))
        self._counting.committing.add(monotonic() - each.transactions.began)
        outcomes = prefix.outcomes
        self._counting.ended(processor, prefix.records - len(outcomes))
        for outcome in outcomes:
            self._counting.ended(processor, outcome)
