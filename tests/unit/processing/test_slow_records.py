"""Records that take long: whoever need not wait for them does not, and nothing is withheld."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from redrive import App, Retry, RetryPolicy
from redrive.choices import Ordering
from redrive.delivery.unit import Tools
from redrive.delivery.units import Units
from redrive.guarantees import GUARANTEES, Delivery
from redrive.ports import Position
from redrive.processing import work
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.calls.turns import Turn
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import PENDING
from redrive.record import Record, TopicPartition
from redrive.testing import MemoryBroker, VirtualClock
from redrive.testing.memory_store import MemoryStore
from redrive.tuning import QUICK_LOTS

QUICK = 0.000_001


async def asynchronous(record: Any, ctx: Any) -> None: ...


def synchronous(record: Any, ctx: Any) -> None: ...


class Bench:
    """One partition, whose lots are run by hand."""

    def __init__(
        self,
        ordering: Ordering = "key",
        handle: Callable[[Any, Any], Any] = synchronous,
        *,
        concurrency: int = 4,
        lots: int | None = None,
        many_threads: bool = False,
        delivery: Delivery = "at-least-once",
        **options: Any,
    ) -> None:
        """`lots`: how many may run at a time, where that is not the app's concurrency."""
        self.app = App("app", ordering=ordering, concurrency=concurrency, delivery=delivery)
        self.app.handler("t", retry=RetryPolicy("1s"), **options)(handle)
        self.scope = Scope(self.app, {})
        self.scope.threads = concurrency if many_threads else 0
        self.done: list[int] = []
        self.dispatcher = Dispatcher(VirtualClock(), lots or concurrency, self._sink)
        self.tracker = AckTracker(Position(0))
        self.processor = PartitionProcessor(self.scope, TopicPartition("t", 0), self.tracker)
        self.dispatcher.add(self.processor)
        self.read = 0

    def _sink(self, processor: PartitionProcessor, report: Report) -> None:
        self.done += report.offsets
        processor.settle(report.offsets)

    def offer(self, keys: str) -> None:
        """A record for each letter; "-" has no key."""
        records = [
            Record("t", 0, self.read + n, None if key == "-" else key.encode(), b"v")
            for n, key in enumerate(keys)
        ]
        self.read += len(keys)
        self.dispatcher.offer(self.processor, records)

    def take(self) -> Lot:
        lot = self.dispatcher.take()
        assert lot is not None
        return lot

    def offsets(self) -> list[list[int]]:
        """Those of all lots that may run now."""
        found = []
        while (lot := self.dispatcher.take()) is not None:
            found.append([each.offset for each in lot.works])
        return found

    def end(self, lot: Lot) -> None:
        lot.results.extend([None] * len(lot.begin()))
        lot.calls = len(lot.results)
        lot.seconds = QUICK * lot.calls
        self.dispatcher.report(lot)

    def be_quick(self) -> None:
        self.offer("a")
        self.end(self.take())
        assert self.processor.quick


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called: whatever runs by then takes long."""
    monkeypatch.setattr(work, "SLOW_RECORD", inf)
    return lambda: monkeypatch.setattr(work, "SLOW_RECORD", -1.0)


@pytest.mark.parametrize(
    ("ordering", "keys", "handle", "options"),
    [
        ("unordered", "aaaa", synchronous, {"timeout": "1m"}),
        ("unordered", "aaaa", asynchronous, {}),
        ("key", "----", synchronous, {}),
    ],
    ids=["sync", "async", "null keys"],
)
def test_records_without_order_do_not_wait_for_a_slow_one_of_their_lot(
    slow: Callable[[], None],
    ordering: Ordering,
    keys: str,
    handle: Callable[[Any, Any], Any],
    options: dict[str, Any],
) -> None:
    # Lots as large as one thread gets them, and threads to spare.
    bench = Bench(ordering, handle, concurrency=1, lots=4, **options)
    bench.offer(keys)
    lot = bench.take()
    assert len(lot.works) == 2
    lot.begin(1)
    slow()
    bench.dispatcher.tick()
    assert sorted(offset for each in bench.offsets() for offset in each) == [1, 2, 3]
    lot.results.append(None)
    assert lot.begin(1) == []
    bench.dispatcher.report(lot)
    assert bench.done == [0]


def test_of_a_lot_of_many_keys_only_the_slow_one_waits_for_it(slow: Callable[[], None]) -> None:
    bench = Bench(timeout="1m")
    bench.be_quick()
    bench.offer("abbaccb")
    lot = bench.take()
    assert len(lot.works) == 7
    assert [each.offset for each in lot.begin(3)] == [1, 4, 2]  # the first two are those of a
    lot.results.extend([None, None])  # and it is with the first of b
    slow()
    bench.dispatcher.tick()
    assert bench.done == [0, 1, 4]
    assert bench.offsets() == [[5, 6]]
    lot.results.append(None)
    bench.dispatcher.report(lot)
    assert bench.done == [0, 1, 4, 2]
    assert bench.offsets() == [[3, 7]]


def test_what_ended_just_before_is_reported_before_those_behind_it_may_run(
    slow: Callable[[], None],
) -> None:
    """Nobody has collected it yet: it came after the look at what is done."""
    bench = Bench(timeout="1m")
    bench.be_quick()
    bench.offer("abab")
    lot = bench.take()
    assert [each.offset for each in lot.begin(3)] == [1, 3, 2]
    lot.results.extend([None, None])
    slow()
    report = bench.processor.look_for_slow(0)
    assert report is not None
    assert report.done == [1, 3]
    bench.offer("ab")
    assert bench.offsets() == [[5]]


def test_nor_does_a_unit_of_work_keep_those_of_its_lot_that_are_not_part_of_it(
    slow: Callable[[], None],
) -> None:
    taken: list[list[int]] = []

    def handle(record: Any, ctx: Any) -> None:
        if not taken:
            slow()
            bench.dispatcher.tick()  # as the poll thread does meanwhile
            taken.extend(bench.offsets())

    bench = Bench("unordered", handle, concurrency=1, lots=100, delivery="idempotent")
    clock = VirtualClock()
    tools = Tools(bench.scope, GUARANTEES["idempotent"], MemoryBroker(clock), clock)
    units = Units(tools, MemoryStore(clock))
    bench.scope.units = units
    bench.offer("a" * 100)
    lot = bench.take()
    assert len(lot.works) == 50
    units.run(lot, bench.dispatcher)
    assert sorted(offset for each in taken for offset in each) == list(range(16, 100))
    assert bench.done == list(range(16))


def test_with_one_key_there_is_nobody_to_go_on(slow: Callable[[], None]) -> None:
    bench = Bench(timeout="1m")
    bench.offer("aaa")
    lot = bench.take()
    lot.begin(1)
    slow()
    bench.dispatcher.tick()
    assert bench.offsets() == []
    assert [each.offset for each in lot.todo] == [1, 2]


def test_a_lot_that_has_not_begun_is_left_to_its_thread(slow: Callable[[], None]) -> None:
    """Else a machine that is busy enough would only hand lots out and take them back."""
    bench = Bench("unordered", timeout="1m", concurrency=1)
    bench.offer("aaaa")
    lot = bench.take()
    slow()
    bench.dispatcher.tick()
    assert len(lot.todo) == len(lot.works) == 2


@pytest.mark.parametrize("options", [{}, {"timeout": "1m"}], ids=str)
def test_slow_records_of_a_quick_partition_take_no_turns_from_the_others(
    slow: Callable[[], None], options: dict[str, Any]
) -> None:
    bench = Bench(concurrency=8, **options)
    bench.be_quick()
    for key in "bc"[:QUICK_LOTS]:
        bench.offer(key)
        lot = bench.take()
        if isinstance(lot, Turn):
            lot.current = lot.queue.popleft()
        else:
            lot.begin()
        slow()
        bench.dispatcher.tick()
    bench.offer("d")
    assert len(bench.processor.lots) == QUICK_LOTS
    assert bench.dispatcher.take() is not None


def test_so_do_those_without_order(slow: Callable[[], None]) -> None:
    bench = Bench("unordered", concurrency=8, many_threads=True)
    bench.offer("a")
    share = bench.take()
    assert isinstance(share, Turn)
    share.run(inf)
    bench.dispatcher.report(share)
    assert bench.processor.quick
    bench.offer("bcd")
    assert [bench.dispatcher.take() is not None for _ in range(3)] == [True, True, False]
    slow()
    assert bench.dispatcher.take() is not None


@pytest.mark.parametrize("withdrawn", [False, True])
@pytest.mark.parametrize("options", [{}, {"timeout": "1m"}], ids=["straight", "lanes"])
def test_what_is_done_is_not_withheld_while_another_one_hangs(
    options: dict[str, Any], withdrawn: bool
) -> None:
    """Nor when the partition goes meanwhile."""

    def handle(record: Any, ctx: Any) -> None:
        if record.offset == 3:
            if withdrawn:
                bench.dispatcher.withdraw(bench.processor)
            bench.dispatcher.tick()  # as the poll thread does
            assert bench.done == [0, 1, 2]

    bench = Bench(handle=handle, **options)
    bench.be_quick()
    bench.offer("bcd")
    lot = bench.take()
    if isinstance(lot, Turn):
        lot.run(inf)
    else:
        for each in lot.begin():
            handle(each.record, None)
            lot.results.append(None)
    bench.dispatcher.report(lot)
    assert bench.done == [0, 1, 2, 3]


@pytest.mark.parametrize("result", [Retry("not yet"), PENDING])
def test_what_failed_or_is_not_known_yet_is_taken_at_the_end_of_its_lot(result: Any) -> None:
    bench = Bench("unordered", concurrency=1, timeout="1m")
    bench.offer("aaaa")
    lot = bench.take()
    lot.begin(2)
    lot.results.extend([None, result])
    bench.dispatcher.tick()
    assert bench.done == [0]
    assert lot.reported == 1
