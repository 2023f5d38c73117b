"""When a record may run that comes into a lane where others are before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive import App, RetryPolicy
from redrive import envelope as envelopes
from redrive.choices import Ordering
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing import VirtualClock


@pytest.mark.parametrize("ordering", ["key", "partition", "unordered"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_one_that_is_back_in_its_origin_topic_does_not_run_early(
    ordering: Ordering, before: int
) -> None:
    """The clock of who has written it back is ahead of this one's, and its key is busy."""
    clock = VirtualClock()
    calls: list[tuple[bytes | None, int]] = []
    app = App("shop", ordering=ordering, retry=RetryPolicy("10s", redeliver="origin"))
    begin = clock.now()
    app.handler("orders", timeout="1m")(
        lambda record, ctx: calls.append((record.value, clock.now() - begin))
    )
    scope = Scope(app, {}, clock=clock)
    dispatcher = Dispatcher(clock, 1, lambda each, report: each.settle(report.offsets))
    executor = InlineExecutor(scope, Resources(app))
    executor.start(dispatcher)
    processor = PartitionProcessor(
        scope, TopicPartition("orders", 0), AckTracker(Position(0)), delay=None
    )
    dispatcher.add(processor)
    first = Record("orders", 0, 0, b"a", b"back")
    parked = replace(
        envelopes.fresh(first, app="shop", message_id="1", now=begin - 10_000),
        attempt=2,
        due=begin + 5000,
    )
    records = [Record("orders", 0, 4 + number, b"a", b"before") for number in range(before)]
    records.append(Record("orders", 0, 8, b"a", b"back", parked.headers(()), begin))
    records.append(Record("orders", 0, 9, b"a", b"behind"))

    def run() -> None:
        dispatcher.tick()
        executor.run()

    dispatcher.offer(processor, records)
    run()
    clock.advance(4999)
    run()
    early = [(b"before", 0)] * before + [(b"behind", 0)] * (ordering == "unordered")
    assert calls == early
    clock.advance(1)
    run()
    late = [(b"back", 5000)] + [(b"behind", 5000)] * (ordering != "unordered")
    assert calls == early + late
    executor.close()
