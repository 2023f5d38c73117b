"""What begins during an outage, in a process whose partitions come and go."""

from __future__ import annotations

from redrive import App, Guard, Outage, RetryPolicy
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing.virtual_clock import VirtualClock


class Process:
    """One with an app whose handler says that there is an outage, until there is none."""

    def __init__(self, concurrency=1):
        self.away = True
        self.called = []
        self.reports = []
        app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=concurrency)

        @app.handler("orders")
        def handle(record, ctx):
            self.called.append((record.partition, record.offset))
            if self.away:
                raise Outage("away")

        self.clock = VirtualClock()
        self.scope = Scope(app, {"orders": "id"}, clock=self.clock, guarded=True)
        self.dispatcher = Dispatcher(
            self.clock, concurrency, lambda *report: self.reports.append(report), self.scope.guards
        )
        self.executor = InlineExecutor(self.scope, Resources(app))
        self.executor.start(self.dispatcher)

    def take_up(self, number, records=10, start=0):
        place = TopicPartition("orders", number)
        processor = PartitionProcessor(self.scope, place, AckTracker())
        self.dispatcher.add(processor)
        self.dispatcher.offer(
            processor,
            [
                Record("orders", number, offset, b"%d" % offset, b"", (), 0)
                for offset in range(start, start + records)
            ],
        )
        return processor

    def run(self, after=0):
        self.clock.set(self.clock.now() + after)
        self.dispatcher.tick()
        self.executor.run()
        self.dispatcher.tick()

    def close(self):
        self.executor.close()


def test_a_partition_that_comes_by_a_rebalance_waits_for_the_end_of_the_outage():
    process = Process()
    process.take_up(0)
    process.run()
    assert process.called == [(0, 0)]
    process.take_up(1)
    process.run()
    assert process.called == [(0, 0)]
    process.run(after=1000)
    process.run(after=2000)
    assert {partition for partition, _ in process.called[1:]} == {0, 1}
    assert len(process.called) == 3
    process.close()


def test_a_probe_whose_partition_was_taken_away_is_followed_by_another():
    process = Process()
    first = process.take_up(0)
    process.run()
    process.clock.set(process.clock.now() + 1000)
    process.dispatcher.tick()
    lot = process.dispatcher.take()
    process.dispatcher.remove(first)
    process.take_up(1)
    lot.run()
    process.dispatcher.report(lot)
    process.run()
    assert (1, 0) in process.called
    process.close()


def test_nothing_that_waits_is_reported_when_its_partition_is_taken_away():
    process = Process()
    first = process.take_up(0)
    process.run()
    process.dispatcher.stop_waiting()
    process.dispatcher.remove(first)
    assert not any(report.outcomes or report.done for _, report in process.reports)
    assert first.tracker.position() is None or first.tracker.position().offset == 0
    process.close()


def test_no_more_run_at_once_than_the_ramp_allows():
    process = Process(concurrency=8)
    process.take_up(0, records=60)
    process.run()
    process.away = False
    process.clock.set(process.clock.now() + 1000)
    widths = []
    for _ in range(9):
        process.dispatcher.tick()
        lots = []
        while (lot := process.dispatcher.take()) is not None:
            assert len(lot.works) == 1
            lots.append(lot)
        widths.append(len(lots))
        for lot in lots:
            lot.run()
        for lot in lots:
            process.dispatcher.report(lot)
    assert widths[:5] == [1, 1, 1, 1, 2]
    most = (1, 1, 1, 1, 2, 4, 8, 8, 8)
    assert all(width <= limit for width, limit in zip(widths, most, strict=True))
    process.close()
