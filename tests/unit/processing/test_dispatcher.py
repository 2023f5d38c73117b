"""Whose turn it is: fairness between keys, partitions, and fresh and parked work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from redrive import App, RetryPolicy
from redrive.choices import Ordering
from redrive.envelope import fresh
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import PENDING
from redrive.record import Record, TopicPartition
from redrive.testing import VirtualClock


class Desk:
    """An app with one source topic and one delay topic, and its dispatcher."""

    def __init__(self, *, concurrency: int, ordering: Ordering = "key", **options: object) -> None:
        self.app = App("desk", ordering=ordering, concurrency=concurrency)
        self.app.handler("t", retry=RetryPolicy("1s"), **options)(lambda record, ctx: None)  # type: ignore[arg-type]  # -- whatever a test asks for
        self.clock = VirtualClock()
        self.scope = Scope(self.app, {})
        self.settled: list[int] = []
        self.dispatcher = Dispatcher(self.clock, concurrency, self.settle)

    def settle(self, processor: PartitionProcessor, report: Report) -> None:
        processor.settle(report.done)
        self.settled += report.done

    def partition(self, number: int = 0, *, delay: int | None = None) -> PartitionProcessor:
        topic = "t" if delay is None else "desk.retry.1s"
        tracker = AckTracker()
        processor = PartitionProcessor(
            self.scope, TopicPartition(topic, number), tracker, delay=delay
        )
        self.dispatcher.add(processor)
        return processor

    def fresh(self, keys: Iterable[str], number: int = 0) -> PartitionProcessor:
        processor = self.partition(number)
        records = [Record("t", number, n, key.encode(), b"") for n, key in enumerate(keys)]
        self.dispatcher.offer(processor, records)
        return processor

    def parked(self, keys: Iterable[str]) -> PartitionProcessor:
        processor = self.partition(delay=1000)
        records = [self.parked_record(n, key) for n, key in enumerate(keys)]
        self.dispatcher.offer(processor, records)
        return processor

    def parked_record(self, offset: int, key: str) -> Record:
        origin = Record("t", 0, offset, key.encode(), b"")
        past = self.clock.now() - 5000
        envelope = fresh(origin, app="desk", message_id=str(offset), now=past)
        headers = envelope.headers(())
        return Record("desk.retry.1s", 0, offset, origin.key, b"", headers, past)

    def take_all(self) -> list[Lot]:
        lots = []
        while (lot := self.dispatcher.take()) is not None:
            lots.append(lot)
        return lots

    def finish(self, lot: Lot) -> None:
        lot.results.extend([None] * (len(lot.works) - lot.reported))
        self.dispatcher.report(lot)


def keys_of(lot: Lot) -> set[str]:
    return {(work.record.key or b"").decode() for work in lot.works}


def test_the_concurrency_limit_holds_over_all_partitions() -> None:
    desk = Desk(concurrency=3)
    for number in range(4):
        desk.fresh("abcdef", number)
    lots = desk.take_all()
    assert len(lots) == 3
    desk.finish(lots[0])
    assert len(desk.take_all()) == 1


def test_one_hot_key_does_not_starve_the_others() -> None:
    desk = Desk(concurrency=1)
    desk.fresh(["hot"] * 10_000 + ["cold", "cool"])
    seen: list[set[str]] = []
    for _ in range(3):
        lot = desk.dispatcher.take()
        assert lot is not None
        seen.append(keys_of(lot))
        desk.finish(lot)
    assert seen == [{"hot"}, {"cold"}, {"cool"}]


def test_others_that_keep_coming_do_not_starve_a_hot_key() -> None:
    desk = Desk(concurrency=1)
    processor = desk.fresh(["hot"] * 1_000 + ["cold"])
    seen: list[set[str]] = []
    for number in range(20):
        lot = desk.dispatcher.take()
        assert lot is not None
        seen.append(keys_of(lot))
        desk.finish(lot)
        desk.dispatcher.offer(processor, [Record("t", 0, 2_000 + number, b"%d" % number, b"")])
    assert seen.count({"hot"}) >= 4


def test_a_hot_key_takes_one_slot_only() -> None:
    desk = Desk(concurrency=4)
    desk.fresh(["hot"] * 1_000 + ["a", "b", "c"])
    assert sorted(key for lot in desk.take_all() for key in keys_of(lot)) == ["a", "b", "c", "hot"]


def turns(desk: Desk, lots: list[Lot], count: int) -> Iterator[set[str]]:
    """The keys of the next lots, each taken when the oldest under way has ended."""
    for _ in range(count):
        desk.finish(lots.pop(0))
        lot = desk.dispatcher.take()
        assert lot is not None
        lots.append(lot)
        yield keys_of(lot)


def test_a_hot_key_need_not_wait_for_all_others_before_its_next_lot() -> None:
    desk = Desk(concurrency=4)
    desk.fresh(["hot"] * 10_000 + [f"cold {n}" for n in range(1_000)])
    lots = desk.take_all()
    found = list(turns(desk, lots, 60))
    assert found.count({"hot"}) == 15
    assert len({key for keys in found for key in keys}) == 1 + 45


@pytest.mark.parametrize("partitions", [1, 4])
def test_hot_keys_leave_half_of_the_threads_to_the_others(partitions: int) -> None:
    desk = Desk(concurrency=4)
    hot = [f"hot {n}" for n in range(8)]
    for number in range(partitions):
        desk.fresh([*hot * 2_000, *(f"cold {n}" for n in range(200))], number)
    lots = desk.take_all()
    assert len(list(turns(desk, lots, 8))) == 8  # until each of the first has ended
    for _ in turns(desk, lots, 80):
        assert sum(keys_of(lot) <= set(hot) for lot in lots) <= 2


@pytest.mark.parametrize(("pace", "large"), [(0.002, 500), (0.005, 200), (0.1, 64)])
def test_a_hot_key_has_large_lots_where_others_have_threads_left(pace: float, large: int) -> None:
    desk = Desk(concurrency=4)
    desk.fresh([f"hot {n}" for n in range(4)] * 10_000)
    first = desk.take_all()
    assert [len(lot.works) for lot in first] == [64] * 4  # nobody knows yet how long they take
    for lot in first:
        lot.seconds, lot.calls = pace * len(lot.works), len(lot.works)
        desk.finish(lot)
    assert [len(lot.works) for lot in desk.take_all()] == [large, large, 64, 64]


def test_a_hot_key_has_its_turn_also_if_new_ones_become_hot_before_theirs() -> None:
    desk = Desk(concurrency=4)
    processor = desk.fresh(["hot"] * 10_000)
    lots = desk.take_all()
    found: list[set[str]] = []
    for number in range(60):
        offset = 10_000 + 400 * number
        keys = [b"%d" % (4 * number + each % 4) for each in range(400)]
        records = [Record("t", 0, offset + n, key, b"") for n, key in enumerate(keys)]
        desk.dispatcher.offer(processor, records)
        lots += desk.take_all()
        found += turns(desk, lots, 1)
    assert {"hot"} in found[10:]


def test_a_partition_that_goes_gives_back_its_share_of_the_threads() -> None:
    desk = Desk(concurrency=4)
    gone = desk.fresh([f"hot {n}" for n in range(4)] * 1_000, 0)
    late = desk.take_all()
    assert desk.scope.long_lanes.running == 4
    desk.dispatcher.remove(gone)
    assert desk.scope.long_lanes.running == 0
    for lot in late:
        desk.finish(lot)
    assert desk.scope.long_lanes.running == 0


def test_a_hot_key_that_waits_for_its_acknowledgement_has_no_thread() -> None:
    desk = Desk(concurrency=4, ack="manual")
    desk.fresh([f"hot {n}" for n in range(4)] * 1_000)
    for lot in desk.take_all():
        lot.results.append(PENDING)
        desk.dispatcher.report(lot)
    assert desk.scope.long_lanes.running == 0


def test_hot_keys_take_turns_and_have_all_threads_if_nobody_else_wants_them() -> None:
    desk = Desk(concurrency=4)
    desk.fresh([f"hot {n}" for n in range(8)] * 10_000)
    lots = desk.take_all()
    found = list(turns(desk, lots, 80))
    assert len(lots) == 4
    assert Counter(key for keys in found for key in keys) == {f"hot {n}": 10 for n in range(8)}


def test_hot_keys_records_without_a_key_and_the_others_take_turns() -> None:
    desk = Desk(concurrency=2)
    processor = desk.partition()
    keys = [*[b"hot"] * 1_000, *(b"cold %d" % n for n in range(100)), *[None] * 1_000]
    desk.dispatcher.offer(processor, [Record("t", 0, n, key) for n, key in enumerate(keys)])
    lots = desk.take_all()
    found = [min(keys)[:4] for keys in turns(desk, lots, 40)]
    assert min(Counter(found)[kind] for kind in ("hot", "cold", "")) >= 9, found


def test_records_without_a_key_and_keyed_ones_take_turns() -> None:
    desk = Desk(concurrency=1)
    processor = desk.partition()
    keys = [None, b"a", None, b"b", None, b"c"] * 50
    desk.dispatcher.offer(processor, [Record("t", 0, n, key) for n, key in enumerate(keys)])
    kinds = []
    for _ in range(4):
        lot = desk.dispatcher.take()
        assert lot is not None
        kinds.append(lot.works[0].record.key is None)
        desk.finish(lot)
    assert kinds.count(True) == 2


def test_partitions_take_turns() -> None:
    desk = Desk(concurrency=1, ordering="partition")
    for number in range(3):
        desk.fresh("x" * 500, number)
    turns = []
    for _ in range(6):
        lot = desk.dispatcher.take()
        assert lot is not None
        turns.append(lot.works[0].record.partition)
        desk.finish(lot)
    assert turns == [0, 1, 2, 0, 1, 2]


def test_work_that_was_parked_and_fresh_work_take_turns() -> None:
    desk = Desk(concurrency=1, ordering="unordered")
    desk.parked("p" * 1_000)
    desk.fresh("f" * 1_000)
    turns = []
    for _ in range(6):
        lot = desk.dispatcher.take()
        assert lot is not None
        turns.append(keys_of(lot).pop())
        desk.finish(lot)
    assert sorted(turns) == ["f", "f", "f", "p", "p", "p"]


def test_parked_work_leaves_a_quarter_of_the_slots_to_fresh_work_that_may_come() -> None:
    desk = Desk(concurrency=8, ordering="unordered")
    desk.parked("p" * 1_000)
    assert len(desk.take_all()) == 6
    desk.fresh("f" * 1_000)
    assert [keys_of(lot).pop() for lot in desk.take_all()] == ["f", "f"]


def test_parked_work_alone_runs_even_with_a_single_slot() -> None:
    desk = Desk(concurrency=1)
    desk.parked("p")
    assert len(desk.take_all()) == 1


def test_lots_are_large_while_there_is_much_to_do_and_single_at_the_end() -> None:
    desk = Desk(concurrency=10, ordering="unordered")
    desk.fresh("x" * 2_000)
    sizes = []
    while (lot := desk.dispatcher.take()) is not None:
        sizes.append(len(lot.works))
        desk.finish(lot)
    assert sum(sizes) == 2_000
    assert sizes[0] == 64
    assert sizes[-10:] == [1] * 10


def test_a_batch_is_filled_from_several_keys_and_keeps_each_keys_order() -> None:
    desk = Desk(concurrency=2, batch=6)
    desk.fresh("aabbccdd")
    first, second = desk.take_all()
    assert [(w.record.key, w.offset) for w in first.works] == [
        (b"a", 0),
        (b"a", 1),
        (b"b", 2),
        (b"b", 3),
        (b"c", 4),
        (b"c", 5),
    ]
    assert keys_of(second) == {"d"}


def test_results_of_a_partition_that_was_taken_away_do_not_count() -> None:
    desk = Desk(concurrency=2)
    processor = desk.fresh("ab")
    lots = desk.take_all()
    desk.dispatcher.remove(processor)
    assert all(lot.cancelled for lot in lots)
    for lot in lots:
        desk.finish(lot)
    assert desk.settled == []
    assert desk.dispatcher.idle


@pytest.mark.parametrize("ordering", ["key", "partition", "unordered"])
def test_a_partition_that_is_taken_up_again_waits_for_what_it_has_left_running(
    ordering: Ordering, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(concurrency=4, ordering=ordering)
    before = desk.fresh("ab")
    left = desk.take_all()
    desk.dispatcher.remove(before)
    desk.fresh("ab")
    assert "t[0] was assigned again while earlier handlers are still running" in caplog.text
    desk.fresh("c", 1)
    assert [keys_of(lot) for lot in desk.take_all()] == [{"c"}]
    for lot in left:
        assert desk.take_all() == []
        desk.finish(lot)
    assert sum(len(lot.works) for lot in desk.take_all()) == 2


def test_tick_tells_when_the_next_parked_record_is_due() -> None:
    desk = Desk(concurrency=1)
    processor = desk.partition(delay=1000)
    record = desk.parked_record(0, "k")._replace(timestamp=desk.clock.now())
    desk.dispatcher.offer(processor, [record])
    assert desk.dispatcher.take() is None
    assert desk.dispatcher.tick() == desk.clock.now() + 1000
    desk.clock.advance(999)
    desk.dispatcher.tick()
    assert desk.dispatcher.take() is None
    desk.clock.advance(1)
    assert desk.dispatcher.tick() is None
    assert desk.dispatcher.take() is not None
