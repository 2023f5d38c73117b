"""Where one thread runs all: straight in the order of reading, with the same end as by lanes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import pytest

from redrive import App, Backoff, InPlace, Retry, RetryPolicy
from redrive.envelope import fresh
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.calls.turns import Turn
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing import VirtualClock

IN_PLACE = RetryPolicy("1s", first=InPlace(attempts=2, backoff=Backoff("100ms", jitter=0)))


class Bench:
    """One partition of an app, and what its handler was called with."""

    def __init__(self, handle: Callable[[Any, Any], Any], **options: Any) -> None:
        self.calls: list[bytes] = []
        self.reports: list[Report] = []
        ordering, start = options.pop("ordering", "key"), options.pop("start", Position(0))
        self.app = App("app", ordering=ordering)

        @self.app.handler("in", **options)
        def called(record, ctx):
            self.calls.append(record.value)
            return handle(record, ctx)

        self.clock = VirtualClock()
        scope = Scope(self.app, {}, clock=self.clock)
        self.tracker = AckTracker(start)
        self.dispatcher = Dispatcher(self.clock, 1, self._sink)
        self.processor = PartitionProcessor(scope, TopicPartition("in", 0), self.tracker)
        self.dispatcher.add(self.processor)
        self.executor = InlineExecutor(scope, Resources(self.app))
        self.executor.start(self.dispatcher)

    def _sink(self, processor: PartitionProcessor, report: Report) -> None:
        self.reports.append(report)
        processor.settle(report.offsets)

    def run(self, records: Sequence[Record], until: float = inf) -> None:
        self.dispatcher.offer(self.processor, records)
        self.executor.run(until)

    @property
    def committable(self) -> int:
        position = self.tracker.position()
        assert position is not None
        return position.offset

    @property
    def kinds(self) -> list[tuple[str, int]]:
        return [(each.kind, each.offset) for report in self.reports for each in report.outcomes]


def records(*values: str, start: int = 0) -> list[Record]:
    """Their key is the value's first letter."""
    return [
        Record("in", 0, start + number, value[:1].encode(), value.encode())
        for number, value in enumerate(values)
    ]


def copy(record, ctx):
    ctx.send("out", record.value, key=record.key)


def failing(*values: str) -> Callable[[Any, Any], None]:
    def handle(record, ctx):
        if record.value.decode() in values:
            raise Retry("not yet")
        copy(record, ctx)

    return handle


@pytest.mark.parametrize("ordering", ["key", "partition", "unordered"])
def test_all_that_is_plain_runs_in_the_order_of_reading(ordering):
    bench = Bench(copy, ordering=ordering)
    bench.run(records("a1", "b1", "a2"))
    assert bench.calls == [b"a1", b"b1", b"a2"]
    (report,) = bench.reports
    assert [(offset, [write.value for write in sends]) for offset, sends, _ in report.sent] == [
        (0, [b"a1"]),
        (1, [b"b1"]),
        (2, [b"a2"]),
    ]
    assert bench.committable == 3


def test_a_handler_that_sends_nothing_is_done_too():
    bench = Bench(lambda record, ctx: None)
    bench.run(records("a1", "b1"))
    assert bench.reports[0].done == [0, 1]
    assert bench.committable == 2


def test_one_that_fails_is_parked_and_the_others_go_on():
    bench = Bench(failing("b1"), retry=RetryPolicy("1s"))
    bench.run(records("a1", "b1", "a2", "b2"))
    assert bench.calls == [b"a1", b"b1", b"a2", b"b2"]
    assert bench.kinds == [("park", 1)]
    assert bench.committable == 4


def test_what_was_done_before_a_failure_is_reported_before_it():
    bench = Bench(failing("b1"), retry=RetryPolicy("1s"))
    bench.run(records("a1", "b1", "a2"))
    assert [report.offsets for report in bench.reports] == [[0, 1], [2]]


def test_nobody_of_its_key_overtakes_one_that_is_tried_again_in_place():
    bench = Bench(failing("b1"), retry=IN_PLACE)
    bench.run(records("a1", "b1", "a2", "b2"))
    assert bench.calls == [b"a1", b"b1", b"a2"]  # now that one waits, lanes keep the order
    bench.run(records("b3", start=4))
    bench.clock.advance(100)
    bench.dispatcher.tick()
    bench.executor.run()
    assert bench.calls == [b"a1", b"b1", b"a2", b"b1", b"b2", b"b3"]
    assert bench.kinds == [("park", 1)]
    assert bench.committable == 5


def test_once_nothing_waits_any_more_they_run_straight_again():
    bench = Bench(failing("a1"), retry=IN_PLACE)
    bench.run(records("a1", "b1"))
    bench.clock.advance(100)
    bench.dispatcher.tick()
    bench.executor.run()
    bench.dispatcher.offer(bench.processor, records("a2", start=2))
    lot = bench.dispatcher.take()
    assert isinstance(lot, Turn)
    lot.run(inf)
    bench.dispatcher.report(lot)
    assert bench.committable == 3


def test_what_is_left_when_the_time_is_over_runs_later():
    bench = Bench(copy)
    bench.dispatcher.offer(bench.processor, records("a1", "a2", "a3"))
    lot = bench.dispatcher.take()
    lot.run(until=0)  # over after the first
    bench.dispatcher.report(lot)
    assert bench.committable == 1
    bench.executor.run()
    assert bench.calls == [b"a1", b"a2", b"a3"]
    assert bench.committable == 3


def test_what_was_completed_before_a_crash_does_not_run():
    before = AckTracker(Position(0))
    before.receive([0, 1, 2])
    before.complete([1])
    bench = Bench(copy, start=before.position())
    bench.run(records("a0", "a1", "a2"))
    assert bench.calls == [b"a0", b"a2"]
    assert bench.committable == 3


def test_records_that_redrive_has_written_go_the_ordinary_way():
    bench = Bench(copy)
    (origin,) = records("b1", start=1)
    others = fresh(origin, app="other", message_id="7", now=0).headers(())
    bench.run([*records("a1"), origin._replace(headers=others), *records("a2", start=2)])
    assert bench.calls == [b"a1", b"a2"]
    assert bench.kinds == [("skip", 1)]
    assert bench.committable == 3


def test_headers_of_the_users_own_are_no_obstacle():
    bench = Bench(lambda record, ctx: ctx.send("out", record.header("trace")))
    bench.run([records("a1")[0]._replace(headers=(("trace", b"7"),))])
    assert bench.reports[0].sent[0][1][0].value == b"7"


def test_values_are_decoded_and_what_cannot_be_is_buried():
    bench = Bench(lambda record, ctx: ctx.send("out", record.data["n"]), decode=json.loads)
    bench.run(records('{"n": 1}', "nonsense", '{"n": 2}'))
    assert [report.offsets for report in bench.reports] == [[0, 1], [2]]
    assert bench.kinds == [("bury", 1)]


def test_a_handler_can_ask_its_context_whatever_it_wants():
    seen: list[Any] = []

    def handle(record, ctx):
        seen.append((ctx.attempt, ctx.tries, ctx.envelope.origin_offset, ctx.record is record))
        assert ctx.envelope is ctx.envelope

    bench = Bench(handle)
    bench.run(records("a1", "b1"))
    assert seen == [(1, 1, 0, True), (1, 1, 1, True)]


def test_what_a_handler_returns_to_be_awaited_is_its_failure():
    async def forgotten() -> None: ...

    bench = Bench(lambda record, ctx: forgotten())
    bench.run(records("a1"))
    assert [each.kind for report in bench.reports for each in report.outcomes] == ["bury"]


@pytest.mark.parametrize(
    "options",
    [{"batch": 10}, {"ack": "manual"}, {"timeout": "1s"}],
    ids=lambda each: next(iter(each)),
)
def test_other_forms_of_handlers_go_by_lanes(options):
    bench = Bench(lambda record, ctx: None, **options)
    bench.dispatcher.offer(bench.processor, records("a1"))
    assert not isinstance(bench.dispatcher.take(), Turn)


def test_nothing_runs_while_the_dispatcher_is_paused():
    bench = Bench(copy)
    bench.dispatcher.pause()
    bench.run(records("a1"))
    assert bench.calls == []
    bench.dispatcher.resume()
    bench.executor.run()
    assert bench.calls == [b"a1"]
