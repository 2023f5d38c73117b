"""Records without order, which threads take by themselves: the same as by lots, only sooner."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import App, Backoff, InPlace, Retry, RetryPolicy
from redrive.envelope import Envelope, fresh, parse
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.calls.turns import Turn
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import ThreadExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing import VirtualClock

PARK = RetryPolicy("1s")


class Bench:
    """One partition of an app without order, and what became of its records."""

    def __init__(self, handle: Callable[[Any, Any], Any], *, retry: RetryPolicy = PARK) -> None:
        self.calls: list[int] = []
        self.reports: list[Report] = []
        self.app = App("app", ordering="unordered", concurrency=4)

        @self.app.handler("in", retry=retry)
        def called(record, ctx):
            self.calls.append(record.offset)
            return handle(record, ctx)

        self.clock = VirtualClock()
        self.scope = Scope(self.app, {}, clock=self.clock)
        self.scope.threads = 8
        self.dispatcher = Dispatcher(self.clock, 4, self._sink)
        self.tracker, self.processor = self.partition(0)

    def partition(self, number: int) -> tuple[AckTracker, PartitionProcessor]:
        tracker = AckTracker(Position(0))
        processor = PartitionProcessor(self.scope, TopicPartition("in", number), tracker)
        self.dispatcher.add(processor)
        return tracker, processor

    def _sink(self, processor: PartitionProcessor, report: Report) -> None:
        self.reports.append(report)
        processor.settle(report.offsets)

    def offer(self, *records: Record) -> None:
        self.dispatcher.offer(self.processor, records)

    def take(self) -> Turn:
        lot = self.dispatcher.take()
        assert isinstance(lot, Turn)
        return lot

    def run(self) -> None:
        """As one thread does it."""
        while (lot := self.dispatcher.take()) is not None:
            assert isinstance(lot, Turn)
            lot.run(inf)
            self.dispatcher.report(lot)

    @property
    def committable(self) -> int:
        position = self.tracker.position()
        assert position is not None
        return position.offset

    @property
    def kinds(self) -> list[tuple[str, int]]:
        return [(each.kind, each.offset) for report in self.reports for each in report.outcomes]


def record(offset: int, headers: Any = ()) -> Record:
    return Record("in", 0, offset, b"key", b"%d" % offset, headers)


def nothing(record: Any, ctx: Any) -> None:
    pass


def failing(*offsets: int) -> Callable[[Any, Any], None]:
    def handle(record, ctx):
        if record.offset in offsets:
            raise Retry("not yet")
        ctx.send("out", record.value)

    return handle


@given(st.sets(st.integers(0, 59)), st.integers(1, 60))
def test_whatever_fails_all_threads_together_run_each_record_once(failed, lot):
    bench = Bench(failing(*failed))
    executor = ThreadExecutor(bench.scope, Resources(bench.app), 4)
    executor.start(bench.dispatcher)
    for start in range(0, 60, lot):
        bench.offer(*map(record, range(start, min(60, start + lot))))
    with bench.dispatcher.changed:
        assert bench.dispatcher.changed.wait_for(lambda: bench.dispatcher.idle, timeout=30)
    assert executor.close()
    assert sorted(bench.calls) == list(range(60))
    assert sorted(bench.kinds) == [("park", offset) for offset in sorted(failed)]
    sent = [one for report in bench.reports for one in report.sent]
    assert sorted(offset for offset, _, _ in sent) == sorted(set(range(60)) - failed)
    assert all(writes[0].value == b"%d" % offset for offset, writes, _ in sent)
    assert bench.committable == 60


def test_what_is_done_is_reported_while_the_next_one_runs():
    seen: list[int] = []

    def handle(record, ctx):
        if record.offset == 2:
            bench.dispatcher.tick()  # as the poll thread does meanwhile
            seen.append(bench.committable)

    bench = Bench(handle)
    bench.offer(*map(record, range(3)))
    bench.run()
    assert seen == [2]
    assert bench.committable == 3


def test_one_that_fails_waits_in_place_while_the_others_go_on():
    in_place = RetryPolicy("1s", first=InPlace(attempts=2, backoff=Backoff("100ms", jitter=0)))
    bench = Bench(failing(0), retry=in_place)
    bench.offer(*map(record, range(3)))
    bench.run()
    assert bench.calls == [0, 1, 2]
    assert bench.committable == 0
    bench.clock.advance(100)
    bench.dispatcher.tick()
    lot = bench.dispatcher.take()
    assert lot is not None
    assert [work.offset for work in lot.works] == [0]
    lot.results.append(Retry("not yet"))
    bench.dispatcher.report(lot)
    assert bench.kinds == [("park", 0)]
    assert bench.committable == 3


def test_a_record_that_fails_was_received_when_it_was_read():
    bench = Bench(failing(0, 1))
    first = bench.clock.now()
    bench.offer(record(0))
    bench.clock.advance(500)
    bench.offer(record(1))
    bench.run()
    parked = [parse(each.writes[0].headers) for report in bench.reports for each in report.outcomes]
    assert [each.first_received for each in parked if isinstance(each, Envelope)] == [
        first,
        first + 500,
    ]


def test_one_that_comes_back_goes_the_ordinary_way():
    bench = Bench(nothing)
    came = fresh(record(0), app="app", message_id="id", now=0)
    bench.offer(record(0), record(1, came.headers(())), record(2))
    turn = bench.take()
    turn.run()
    assert bench.calls == [0]
    assert not turn.may_go_on
    lot = bench.dispatcher.report_and_take(turn)
    assert lot is not None
    assert [work.offset for work in lot.works] == [1]
    bench.take().run()
    assert bench.calls == [0, 2]


class Contended(deque[Record]):
    """A queue that another thread takes the first record out of, just when it is looked at.

    And in which, just when this thread has taken one, whatever happens that is to happen.
    """

    def __init__(self, records: Iterable[Record], meanwhile: Callable[[], None]) -> None:
        super().__init__(records)
        self.meanwhile: Callable[[], None] | None = meanwhile
        self.looked = False

    def __getitem__(self, index: Any) -> Any:
        record = super().__getitem__(index)
        if not self.looked:
            self.looked = True
            super().popleft()
        return record

    def popleft(self) -> Record:
        record = super().popleft()
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
        return record


def test_what_another_thread_was_quicker_with_is_left_to_it_and_the_next_one_is_not_lost():
    bench = Bench(nothing)
    bench.offer(*map(record, range(3)))
    turn = bench.take()
    turn.queue = Contended(turn.queue, lambda: None)
    turn.run()
    assert sorted(bench.calls) == [1, 2]


def test_nor_is_one_that_is_not_fresh_if_the_rest_is_taken_away_just_then():
    bench = Bench(nothing)
    came = fresh(record(1), app="app", message_id="id", now=0)
    bench.offer(record(0), record(1, came.headers(())), record(2))
    turn = bench.take()
    turn.queue = bench.processor.fresh.queue = Contended(turn.queue, bench.dispatcher.pause)
    turn.run()
    assert bench.calls == []
    bench.dispatcher.report(turn)
    bench.dispatcher.resume()
    lot = bench.dispatcher.take()
    assert lot is not None
    assert [work.offset for work in lot.works] == [1]
    bench.take().run()
    assert bench.calls == [2]


def test_what_a_turn_has_taken_while_the_rest_is_taken_away_is_not_lost():
    bench = Bench(nothing)
    came = fresh(record(2), app="app", message_id="id", now=0)
    bench.offer(record(0), record(1), record(2, came.headers(())))
    turn = bench.take()
    first = bench.processor.fresh.queue[0]
    turn.queue = bench.processor.fresh.queue = Contended(turn.queue, bench.dispatcher.pause)
    turn.run()
    bench.processor.fresh.queue.append(first)  # another thread was quicker with it: here it is not
    bench.dispatcher.report(turn)
    bench.dispatcher.resume()
    while (lot := bench.dispatcher.take()) is not None:
        lot.run()
        bench.dispatcher.report(lot)
    assert sorted(bench.calls) == [0, 1, 2]
    assert bench.committable == 3


def test_records_that_fail_take_their_time_too():
    """Else handlers that fail after a while would be taken for quick ones: two threads for all."""

    class Times:
        counted = 0

        def add(self, seconds, count=1):
            self.counted += count

    def handle(record, ctx):
        Event().wait(0.002)
        raise Retry("not yet")

    bench = Bench(handle)
    bench.scope.times = times = Times()
    bench.offer(*map(record, range(3)))
    bench.run()
    assert not bench.processor.quick
    assert times.counted == 3


@pytest.mark.parametrize("how", ["withdraw", "remove"])
def test_when_the_partition_goes_nothing_more_of_it_begins(how):
    def handle(record, ctx):
        if record.offset == 1:
            getattr(bench.dispatcher, how)(bench.processor)

    bench = Bench(handle)
    bench.offer(*map(record, range(5)))
    turn = bench.take()
    turn.run(inf)
    bench.dispatcher.report(turn)
    assert bench.calls == [0, 1]
    # What has run still counts, but not once the partition is lost.
    assert bench.committable == (2 if how == "withdraw" else 0)


def test_a_turn_ends_when_its_time_is_over_and_goes_on_if_nobody_else_waits():
    bench = Bench(nothing)
    bench.offer(*map(record, range(3)))
    turn = bench.take()
    turn.run(0)
    assert bench.calls == [0]
    assert turn.may_go_on
    assert not bench.dispatcher.has_others(turn)
    _, other = bench.partition(1)
    assert turn.may_go_on
    assert not bench.dispatcher.has_others(turn)
    bench.dispatcher.offer(other, [record(0)])
    assert bench.dispatcher.has_others(turn)


def test_a_turn_does_not_go_on_before_what_waited_in_place():
    in_place = RetryPolicy("1s", first=InPlace(attempts=2, backoff=Backoff("100ms", jitter=0)))
    bench = Bench(failing(0), retry=in_place)
    bench.offer(record(0))
    bench.run()
    bench.offer(record(1), record(2))
    turn = bench.take()
    assert not bench.dispatcher.has_others(turn)
    bench.clock.advance(100)
    bench.dispatcher.tick()
    assert bench.dispatcher.has_others(turn)


def test_many_threads_take_from_it_at_once():
    """As many as the concurrency says: each waits for all the others."""
    arrived = [Event() for _ in range(4)]

    def handle(record, ctx):
        arrived[record.offset].set()
        assert all(each.wait(30) for each in arrived)

    bench = Bench(handle)
    executor = ThreadExecutor(bench.scope, Resources(bench.app), 4)
    executor.start(bench.dispatcher)
    bench.offer(*map(record, range(4)))
    with bench.dispatcher.changed:
        assert bench.dispatcher.changed.wait_for(lambda: bench.dispatcher.idle, timeout=60)
    assert executor.close()
    assert (bench.kinds, bench.committable) == ([], 4)
