"""Records of quick handlers run as they were read, on one thread, until one fails or takes long."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noted_lanes import note_lanes

from redrive import App, Backoff, GiveBack, InPlace, Retry, RetryPolicy
from redrive.clock import WallClock
from redrive.envelope import fresh
from redrive.ports import Clock, Position
from redrive.processing import work
from redrive.processing.calls.scope import Scope
from redrive.processing.calls.turns import Turn
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor, ThreadExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing import VirtualClock

ORDERINGS = ["key", "partition", "unordered"]


class Bench:
    """One partition of an app whose handlers are known to be quick."""

    def __init__(
        self, handle: Any, *, ordering: Any = "key", clock: Clock | None = None, **options: Any
    ) -> None:
        self.calls: list[bytes] = []
        self.ended: list[int] = []
        self.app = App("app", ordering=ordering, concurrency=4)

        @self.app.handler("in", **options)
        def called(record, ctx):
            self.calls.append(record.value)
            return handle(record, ctx)

        self.clock = clock or VirtualClock()
        self.scope = Scope(self.app, {}, clock=self.clock)
        self.tracker = AckTracker(Position(0))
        self.dispatcher = Dispatcher(self.clock, 4, self._sink)
        with pytest.MonkeyPatch.context() as patch:
            lanes = note_lanes(patch)
            self.processor = PartitionProcessor(self.scope, TopicPartition("in", 0), self.tracker)
        (self.lanes,) = lanes
        self.dispatcher.add(self.processor)
        self.executor = InlineExecutor(self.scope, Resources(self.app))
        self.executor.start(self.dispatcher)
        self.scope.threads = 0  # as if others were there, too
        self.lanes.quick = True  # as after a few lots

    def _sink(self, processor: PartitionProcessor, report: Any) -> None:
        self.ended += report.offsets
        processor.settle(report.offsets)

    def offer(self, *values: str, start: int = 0, headers: Any = ()) -> None:
        self.dispatcher.offer(
            self.processor,
            [
                Record("in", 0, start + number, value[:1].encode(), value.encode(), headers)
                for number, value in enumerate(values)
            ],
        )

    @property
    def committable(self) -> int:
        position = self.tracker.position()
        assert position is not None
        return position.offset


def nothing(record, ctx):
    pass


def failing(*values: str) -> Any:
    def handle(record, ctx):
        if record.value.decode() in values and ctx.tries == 1:
            raise Retry("not yet")

    return handle


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_all_that_was_read_is_one_stretch(ordering):
    bench = Bench(nothing, ordering=ordering)
    bench.offer("a1", "b1")
    bench.offer("a2", start=2)
    lot = bench.dispatcher.take()
    assert isinstance(lot, Turn)
    assert [record.offset for record in lot.queue] == [0, 1, 2]


def test_while_one_runs_the_next_ones_wait_for_it():
    bench = Bench(nothing)
    bench.offer("a1")
    lot = bench.dispatcher.take()
    bench.offer("b1", start=1)
    assert bench.dispatcher.take() is None
    bench.dispatcher.report(lot)
    assert isinstance(bench.dispatcher.take(), Turn)


@pytest.mark.parametrize("options", [{"timeout": "1s"}, {"ack": "manual"}, {"batch": 5}], ids=str)
def test_handlers_that_need_more_go_by_lanes(options):
    bench = Bench(nothing, **options)
    bench.offer("a1", "b1")
    assert not isinstance(bench.dispatcher.take(), Turn)


def test_what_has_no_turn_within_five_milliseconds_is_in_front_of_what_came_meanwhile():
    bench = Bench(nothing)
    bench.offer("a1", "a2", "a3")
    lot = bench.dispatcher.take()
    bench.offer("a4", start=3)
    lot.run(until=0)  # over after the first
    bench.dispatcher.report(lot)
    bench.executor.run()
    assert bench.calls == [b"a1", b"a2", b"a3", b"a4"]
    assert bench.committable == 4


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_one_that_waits_in_place_holds_up_its_own_lane_only(ordering):
    retry = RetryPolicy("1s", first=InPlace(attempts=2, backoff=Backoff("100ms", jitter=0)))
    bench = Bench(failing("a1"), ordering=ordering, retry=retry)
    bench.offer("a1", "b1", "a2", "c1")
    bench.executor.run()
    before = {"key": [b"a1", b"b1", b"c1"], "partition": [b"a1"]}
    assert bench.calls == before.get(ordering, [b"a1", b"b1", b"a2", b"c1"])
    bench.offer("b2", start=4)  # while one waits, nothing goes straight
    bench.clock.advance(100)
    bench.dispatcher.tick()
    bench.executor.run()
    assert sorted(bench.ended) == [0, 1, 2, 3, 4]
    keyed = [call for call in bench.calls if call[:1] == b"a"]
    assert ordering == "unordered" or keyed == [b"a1", b"a1", b"a2"]


def test_who_stands_behind_one_that_is_given_back_goes_with_it():
    retry = RetryPolicy("1s", first=GiveBack(attempts=2, backoff=Backoff("100ms", jitter=0)))
    bench = Bench(failing("a1"), retry=retry)
    bench.offer("a1", "b1", "a2", "b2")
    bench.executor.run()
    assert bench.calls == [b"a1", b"b1", b"b2"]
    assert bench.dispatcher.take_seek(bench.processor) == 0
    bench.offer("a1", "b1", "a2", "b2")
    bench.clock.advance(100)
    bench.dispatcher.tick()
    bench.executor.run()
    assert bench.calls[3:] == [b"a1", b"a2"]
    assert bench.committable == 4


def test_one_that_is_not_fresh_is_judged_as_ever_and_the_others_keep_their_order():
    bench = Bench(nothing)
    bench.offer("a1")
    origin = Record("in", 0, 1, b"b", b"b1")
    bench.offer(
        "b1", start=1, headers=fresh(origin, app="other", message_id="7", now=0).headers(())
    )
    bench.offer("b2", "a2", start=2)
    bench.executor.run()
    assert bench.calls == [b"a1", b"b2", b"a2"]
    assert bench.committable == 4


def test_a_pause_ends_it_after_the_record_that_runs():
    bench = Bench(nothing)
    bench.offer("a1", "a2", "a3")
    lot = bench.dispatcher.take()
    bench.dispatcher.pause()
    lot.run(until=1e9)
    bench.dispatcher.report(lot)
    assert bench.calls == []
    bench.dispatcher.resume()
    bench.executor.run()
    assert bench.calls == [b"a1", b"a2", b"a3"]


def test_what_comes_of_a_partition_that_was_taken_away_does_not_count():
    bench = Bench(nothing)
    bench.offer("a1", "a2")
    lot = bench.dispatcher.take()
    bench.dispatcher.remove(bench.processor)
    lot.run(until=1e9)
    bench.dispatcher.report(lot)
    assert bench.calls == []
    assert bench.ended == []


def threaded(bench: Bench) -> ThreadExecutor:
    executor = ThreadExecutor(bench.scope, Resources(bench.app), 4)
    executor.start(bench.dispatcher)
    return executor


@pytest.mark.parametrize(
    ("ordering", "meanwhile"),
    [("key", {b"b1", b"c1"}), ("unordered", {b"a2", b"b1", b"c1"})],
)
def test_those_that_need_not_wait_for_a_slow_one_do_not(monkeypatch, ordering, meanwhile):
    monkeypatch.setattr(work, "SLOW_RECORD", 0.0)
    begun, go_on, others = threading.Event(), threading.Event(), threading.Event()

    def handle(record, ctx):
        if record.value == b"a1":
            begun.set()
            assert go_on.wait(30)
        elif meanwhile <= set(bench.calls):
            others.set()

    bench = Bench(handle, ordering=ordering)
    executor = threaded(bench)
    bench.offer("a1", "b1", "a2", "c1")
    assert begun.wait(30)
    bench.dispatcher.tick()
    assert others.wait(30)
    assert ordering == "unordered" or b"a2" not in bench.calls
    go_on.set()
    with bench.dispatcher.changed:
        assert bench.dispatcher.changed.wait_for(lambda: len(bench.ended) == 4, 30)
    executor.close()
    assert bench.committable == 4


def test_in_order_of_the_partition_all_wait_for_a_slow_one(monkeypatch):
    monkeypatch.setattr(work, "SLOW_RECORD", 0.0)
    begun, go_on = threading.Event(), threading.Event()

    def handle(record, ctx):
        if record.value == b"a1":
            begun.set()
            assert go_on.wait(30)

    bench = Bench(handle, ordering="partition")
    executor = threaded(bench)
    bench.offer("a1", "b1")
    assert begun.wait(30)
    bench.dispatcher.tick()
    bench.offer("c1", start=2)
    assert bench.calls == [b"a1"]
    go_on.set()
    with bench.dispatcher.changed:
        assert bench.dispatcher.changed.wait_for(lambda: len(bench.ended) == 3, 30)
    executor.close()
    assert bench.calls == [b"a1", b"b1", b"c1"]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_what_comes_before_anybody_has_noticed_a_slow_one_stays_behind_it(monkeypatch, ordering):
    monkeypatch.setattr(work, "SLOW_RECORD", 0.0)

    def handle(record, ctx):
        if record.value == b"a1":
            bench.offer("a3", start=2)
            assert bench.dispatcher.take() is None

    bench = Bench(handle, ordering=ordering)
    bench.offer("a1", "a2")
    bench.executor.run()
    assert bench.calls == [b"a1", b"a2", b"a3"]
    assert bench.committable == 3


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_those_that_wait_do_not_overtake_one_that_is_given_back(ordering):
    bench = Bench(nothing, ordering=ordering, retry=RetryPolicy(first=GiveBack(3)))
    bench.lanes.quick = False
    bench.offer("a1")
    lot = bench.dispatcher.take()
    bench.lanes.quick = True  # meanwhile others of the partition came back, quickly
    bench.offer("a2", "a3", start=1)
    lot.results.append(Retry("not yet"))
    bench.dispatcher.report(lot)
    assert bench.dispatcher.take() is None
    assert bench.dispatcher.take_seek(bench.processor) == 0
    bench.offer("a1", "a2", "a3")
    bench.clock.advance(60_000)
    bench.dispatcher.tick()
    bench.executor.run()
    assert bench.calls == [b"a1", b"a2", b"a3"]
    assert bench.committable == 3


@settings(max_examples=60, deadline=None)
@given(
    ordering=st.sampled_from(ORDERINGS),
    first=st.sampled_from([InPlace, GiveBack]),
    chunks=st.lists(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from(["", "", "", "", "fails", "slow"])),
            min_size=1,
            max_size=30,
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_each_runs_until_it_is_done_in_its_order_whatever_fails_or_takes_long(
    ordering, first, chunks
):
    retry = RetryPolicy("1s", first=first(attempts=3, backoff=Backoff("1ms", jitter=0)))
    done: dict[bytes | None, list[int]] = defaultdict(list)
    wait = threading.Event().wait

    def handle(record, ctx):
        if record.value == b"slow":
            wait(0.002)
        if record.value == b"fails" and ctx.tries == 1:
            raise Retry("not yet")
        done[record.key if ordering == "key" else None].append(record.offset)

    bench = Bench(handle, ordering=ordering, clock=WallClock(), retry=retry)
    patch = pytest.MonkeyPatch()
    patch.setattr(work, "SLOW_RECORD", 0.001)
    executor = threaded(bench)
    log = [
        Record("in", 0, offset, key.encode(), what.encode())
        for offset, (key, what) in enumerate(pair for chunk in chunks for pair in chunk)
    ]
    total, read = len(log), 0
    while len(bench.ended) < total:
        ahead = log[read : read + len(chunks[read % len(chunks)])]
        bench.dispatcher.offer(bench.processor, ahead)
        read += len(ahead)
        bench.dispatcher.tick()
        bench.lanes.quick = True
        back = bench.dispatcher.take_seek(bench.processor)
        read = read if back is None else back
        with bench.dispatcher.changed:
            if read == total and len(bench.ended) < total:
                bench.dispatcher.changed.wait(0.001)
    executor.close()
    patch.undo()
    assert sorted(bench.ended) == list(range(total))
    assert bench.committable == total
    if ordering != "unordered":
        assert all(offsets == sorted(offsets) for offsets in done.values())
