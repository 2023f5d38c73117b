"""A unit of work whose partition is taken away while its handler runs."""

from __future__ import annotations

from math import inf

import pytest

from redrive import App, Retry, RetryPolicy
from redrive.choices import Ordering
from redrive.delivery.unit import Tools
from redrive.delivery.units import Units
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.memory_store import MemoryStore
from redrive.testing.virtual_clock import VirtualClock

PLACE = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("ordering", "value", "parked", "known"),
    [("key", b"fails", 1, 1), ("strict", b"fails", 0, 0), ("strict", b"passes", 0, 1)],
)
def test_what_comes_late_of_it_counts_but_nothing_is_parked_in_strict_order(
    ordering: Ordering, value: bytes, parked: int, known: int
) -> None:
    """Whoever has the partition has seen by then what waits: another copy would block nobody."""
    clock = VirtualClock()
    broker, store = MemoryBroker(clock), MemoryStore(clock)
    app = App("shop", delivery="idempotent", ordering=ordering, retry=RetryPolicy("5m"))

    @app.handler("orders")
    def handle(record, ctx):
        dispatcher.remove(processor)
        if record.value == b"fails":
            raise Retry("not now")

    scope = Scope(app, {}, clock=clock)
    units = Units(Tools(scope, app.guarantee, broker, clock), store)
    dispatcher = Dispatcher(clock, 1, lambda *_: None)
    executor = InlineExecutor(scope, Resources(app), units)
    executor.start(dispatcher)
    for topic in ("orders", "shop.retry.5m"):
        broker.create(topic, 1)
    broker.publish([Write("orders", b"anna", value, (), 0)])
    processor = PartitionProcessor(scope, PLACE, AckTracker())
    dispatcher.add(processor)
    dispatcher.offer(processor, broker.records("orders"))
    executor.run(inf)
    assert (len(broker.records("shop.retry.5m")), len(store.rows)) == (parked, known)
