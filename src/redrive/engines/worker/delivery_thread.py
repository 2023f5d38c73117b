"""DeliveryThread: makes outcomes durable beside the poll thread, which never waits for it.

What runs here is the same delivery as on Spark.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from redrive.delivery.flush import FlushDelivery
from redrive.threads import Looking, OnDeath, start_thread
from redrive.tuning import DELIVERY_IDLE, DELIVERY_POLL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redrive.engines.worker.counting import Counting
    from redrive.engines.worker.partition import Partition
    from redrive.kafka.transactional_producer import TransactionalProducer
    from redrive.ports import Clock, Publisher
    from redrive.processing.outcomes.report import Report
    from redrive.processing.processor import PartitionProcessor

    Meanwhile = Callable[[], None]
    """What the poll thread has to do between two looks."""


class DeliveryThread(Protocol):
    """How the outcomes of a worker become durable."""

    @property
    def refused(self) -> int:
        """How many outcomes could not be written, and wait to be tried again."""
        ...

    @property
    def waiting(self) -> int:
        """The same, with those that wait for them."""
        ...

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        ...

    def add(self, processor: PartitionProcessor, report: Report) -> None:
        """Note outcomes: within the dispatcher's lock, without waiting."""
        ...

    def open(self, partition: Partition, producer: TransactionalProducer | None) -> None:
        """Take up a partition."""
        ...

    def forget(self, partition: Partition) -> None:
        """Let go of a partition."""
        ...

    def finish(self, partitions: list[Partition], until: float, meanwhile: Meanwhile) -> None:
        """Wait until what was taken is durable or refused; gives up at that monotonic time."""
        ...

    def close(self, seconds: float) -> bool:
        """End; whether nothing is on its way any more after that time."""
        ...


class FlushThread:
    """At least once: everything durable before its offset is complete."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        counting: Counting,
        on_death: OnDeath,
        sent_to: Collection[str] = (),
    ) -> None:
        self._delivery = FlushDelivery(publisher, clock, sent_to)
        self._clock = clock
        self._counting = counting
        self._news = threading.Event()
        self._closing = False
        self._thread = start_thread(self._run, name="redrive-delivery", on_death=on_death)

    @property
    def refused(self) -> int:
        """How many outcomes could not be written, and wait to be tried again."""
        return self._delivery.refused

    waiting = refused

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return self._delivery.refusal

    def add(self, processor: PartitionProcessor, report: Report) -> None:
        """Note outcomes; what has nothing to write is complete at once."""
        if not (report.sent or report.outcomes):
            processor.settle(report.done)
            self._counting.ended(processor, len(report.done))
            return
        self._delivery.add(processor, report)
        if not self._news.is_set():
            self._news.set()

    def open(self, partition: Partition, producer: TransactionalProducer | None) -> None:
        """Take up a partition."""

    def forget(self, partition: Partition) -> None:
        """Let go of a partition: what comes of its records late no longer counts."""

    def finish(self, partitions: list[Partition], until: float, meanwhile: Meanwhile) -> None:
        """Wait until what was taken is durable or refused; gives up at that monotonic time."""
        del partitions  # reports are settled in the order in which they came
        mark, looking = self._delivery.added, Looking(meanwhile, DELIVERY_POLL)
        while self._delivery.settled < mark and self._thread.is_alive() and monotonic() < until:
            threading.Event().wait(looking.seconds)
            looking()

    def close(self, seconds: float) -> bool:
        """End, once nothing is on its way any more; whether that was within the time."""
        self._closing = True
        self._news.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not (self._closing and not self._delivery.outstanding):
            self._step()

    def _step(self) -> None:
        if not self._delivery.outstanding:
            self._wait()
        self._news.clear()
        for processor, ended in self._delivery.pump(DELIVERY_POLL):
            self._counting.ended(processor, ended)

    def _wait(self) -> None:
        due = self._delivery.next_due()
        seconds = DELIVERY_IDLE if due is None else (due - self._clock.now()) / 1000
        if not self._closing:
            self._news.wait(max(0.0, min(seconds, DELIVERY_IDLE)))
