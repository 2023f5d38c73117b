"""PartitionProcessor, promise by promise; the model beside it covers what nobody thought of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import App, Backoff, GiveBack, InPlace, Retry, RetryPolicy
from redrive.choices import Ordering
from redrive.envelope import fresh, parse
from redrive.parked_rules import Match, ParkedRule
from redrive.processing.calls.context import Context
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.intake.reception import Reception
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import PENDING, Result
from redrive.record import Record, TopicPartition

NOW = 1_000_000
WAIT = Backoff("5s", jitter=0)


class Partition:
    """One partition, stepped by hand."""

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        ordering: Ordering = "key",
        delay: int | None = None,
        recovers: bool = False,
        **options: object,
    ) -> None:
        self.app = App("app", ordering=ordering, concurrency=4)
        self.app.handler("t", retry=policy, **options)(lambda record, ctx: None)  # type: ignore[arg-type]  # -- whatever a test asks for
        if recovers:
            self.app.recover(lambda record, error, ctx: None)
        self.tracker = AckTracker()
        topic = "t" if delay is None else self.app.delay_topic(delay)
        self.processor = PartitionProcessor(
            Scope(self.app, {}), TopicPartition(topic, 0), self.tracker, delay=delay
        )

    def offer(self, *keys: str | None, start: int = 0, now: int = NOW) -> Report:
        return self.processor.offer(
            [
                Record("t", 0, start + n, None if key is None else key.encode(), b"v")
                for n, key in enumerate(keys)
            ],
            now,
        )

    def take(self) -> Lot:
        lot = self.processor.next()
        assert lot is not None
        return lot

    def complete(self, lot: Lot, *results: Result, now: int = NOW) -> Report:
        lot.results.extend(results)
        return self.processor.end(lot, now)

    def run_next(self) -> list[int]:
        """Run a lot to its end."""
        lot = self.processor.next()
        if lot is None:
            return []
        offsets = [work.offset for work in lot.works]
        self.complete(lot, *[None] * len(offsets))
        return offsets

    def running_next(self) -> list[int]:
        lot = self.processor.next()
        return [] if lot is None else [work.offset for work in lot.works]

    def call(self, lot: Lot) -> Context:
        """The context of a call of a manual-ack handler, whose record is the lot's only one."""
        [work] = lot.works
        work.awaited = context = Context(work, self.processor.scope)
        return context

    def acknowledge(self, lot: Lot, context: Context, result: Result = None) -> Report:
        return self.processor.acknowledge(lot.works[0], context, result, NOW)


# In place


def test_a_record_tried_in_place_stays_before_those_behind_it() -> None:
    partition = Partition(RetryPolicy(first=InPlace(3, WAIT)))
    partition.offer("k", "k", "k", "k")
    lot = partition.take()
    partition.complete(lot, None, Retry("not yet"))
    assert partition.processor.next() is None
    assert partition.processor.next_due() == NOW + 5000
    partition.processor.due(NOW + 5000)
    assert partition.running_next() == [1, 2, 3]


def test_other_keys_go_on_while_one_waits_in_place() -> None:
    partition = Partition(RetryPolicy(first=InPlace(3, WAIT)))
    partition.offer("a", "b", "a")
    partition.complete(partition.take(), Retry())
    assert partition.running_next() == [1]


def test_with_partition_order_everybody_waits() -> None:
    partition = Partition(RetryPolicy(first=InPlace(3, WAIT)), ordering="partition")
    partition.offer("a", "b")
    partition.complete(partition.take(), Retry())
    assert partition.running_next() == []


def test_a_parked_record_may_be_overtaken_by_its_key() -> None:
    partition = Partition(RetryPolicy("10s"))
    partition.offer("k", "k")
    report = partition.complete(partition.take(), Retry())
    assert [outcome.kind for outcome in report.outcomes] == ["park"]
    assert partition.running_next() == [1]


# Given back


def test_a_record_given_back_is_read_again_and_nobody_of_its_key_overtakes_it() -> None:
    partition = Partition(RetryPolicy(first=GiveBack(3, WAIT)))
    partition.offer("k", "other", "k", "k")
    partition.complete(partition.take(), Retry())
    assert partition.running_next() == [1]
    assert partition.running_next() == []
    assert partition.processor.take_seek() == 0
    partition.offer("k", "other", "k", "k")
    assert partition.running_next() == []
    partition.processor.due(NOW + 5000)
    lot = partition.take()
    assert [work.offset for work in lot.works] == [0, 2, 3]
    assert lot.works[0].tries == 2


def test_what_was_read_on_before_the_seek_is_ignored_and_read_again() -> None:
    partition = Partition(RetryPolicy(first=GiveBack(3, WAIT)))
    partition.offer("k")
    partition.complete(partition.take(), Retry())
    partition.offer("k", "k", start=1)
    assert partition.running_next() == []
    assert partition.processor.take_seek() == 0
    partition.offer("k", "k", "k")
    partition.processor.due(NOW + 5000)
    assert partition.running_next() == [0, 1, 2]


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_reading_goes_back_to_the_first_that_has_not_come_again(ordering: Ordering) -> None:
    partition = Partition(RetryPolicy(first=GiveBack(3, WAIT)), ordering=ordering)
    partition.offer("a", "b", "c", "d")
    lots = [partition.take() for _ in range(4)]
    partition.complete(lots[1], Retry())
    partition.complete(lots[0], Retry())
    assert partition.processor.take_seek() == 0
    partition.offer("a")
    partition.complete(lots[2], Retry())
    assert partition.processor.take_seek() == 1
    partition.complete(lots[3], Retry())
    assert partition.processor.take_seek() == 1
    partition.offer("b", "c", "d", start=1)
    partition.processor.due(NOW + 5000)
    assert sorted(partition.running_next() for _ in range(4)) == [[0], [1], [2], [3]]


def test_the_rest_of_a_lot_goes_back_behind_its_failed_record() -> None:
    partition = Partition(RetryPolicy(first=GiveBack(3, WAIT)))
    partition.offer("k", "k", "k")
    partition.processor.settle(partition.complete(partition.take(), None, Retry()).done)
    assert partition.tracker.in_flight == 0
    assert partition.running_next() == []
    assert partition.processor.take_seek() == 1
    partition.offer("k", "k", start=1)
    partition.processor.due(NOW + 5000)
    assert partition.running_next() == [1, 2]


def test_records_given_back_are_tried_as_often_as_the_policy_says() -> None:
    partition = Partition(RetryPolicy(first=GiveBack(3, WAIT)))
    now = NOW
    for _ in range(2):
        partition.offer("k")
        partition.processor.due(now)
        assert not partition.complete(partition.take(), Retry(), now=now)
        assert partition.processor.take_seek() == 0
        now += 60_000
    partition.offer("k")
    partition.processor.due(now)
    report = partition.complete(partition.take(), Retry(), now=now)
    assert [(outcome.kind, outcome.reason) for outcome in report.outcomes] == [
        ("bury", "exhausted")
    ]


# Delay topics


def parked_at(
    partition: Partition, *, due: int, appended: int, offset: int = 0, now: int = NOW
) -> None:
    origin = Record("t", 3, 77, b"k", b"v", (("user", b"1"),), 500)
    envelope = fresh(origin, app="app", message_id="id", now=NOW - 60_000)
    headers = (*origin.headers, *envelope.headers(()), ("redrive-due", str(due).encode()))
    record = Record("app.retry.10s", 0, offset, b"k", b"v", headers, appended)
    assert not partition.processor.offer([record], now)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.booleans()), max_size=30))
def test_parked_records_of_a_key_run_in_the_order_in_which_they_are_due(
    steps: list[tuple[int, int, bool]],
) -> None:
    """However reading and time take turns: some are read when those before them are due, too."""
    partition = Partition(RetryPolicy("10s"), delay=10_000)
    now = appended = NOW
    ran: list[int] = []
    for offset, (later, passes, looks) in enumerate(steps):
        appended += later
        parked_at(partition, due=0, appended=appended, offset=offset, now=now)
        now += passes * 1000
        if looks:
            partition.processor.due(now)
            ran += partition.run_next()
    partition.processor.due(now + 3_600_000)
    while offsets := partition.run_next():
        ran += offsets
    assert ran == list(range(len(steps)))


def test_a_parked_record_runs_at_the_later_of_both_clocks() -> None:
    for due, appended in ((NOW + 3000, NOW - 9000), (NOW - 3000, NOW - 7000)):
        partition = Partition(RetryPolicy("10s"), delay=10_000)
        parked_at(partition, due=due, appended=appended)
        expected = max(due, appended + 10_000)
        assert partition.processor.next_due() == expected
        partition.processor.due(expected - 1)
        assert partition.processor.next() is None
        partition.processor.due(expected)
        lot = partition.take()
        record = lot.works[0].record
        assert (record.topic, record.partition, record.offset) == ("t", 3, 77)
        assert record.headers == (("user", b"1"),)


def test_the_offset_in_the_delay_topic_is_what_is_completed() -> None:
    partition = Partition(RetryPolicy("10s"), delay=10_000)
    parked_at(partition, due=NOW, appended=NOW - 10_000)
    report = partition.complete(partition.take(), None)
    assert report.done == [0]


def test_what_is_back_at_its_origin_before_its_time_is_not_parked_for_it() -> None:
    partition = Partition(RetryPolicy("10s 10s", redeliver="origin"))
    origin = Record("t", 0, 7, b"k", b"v")
    envelope = replace(fresh(origin, app="app", message_id="id", now=NOW), attempt=2, due=NOW + 500)
    back = Record("t", 0, 8, b"k", b"v", tuple(envelope.headers(())))
    assert not partition.processor.offer([back], NOW)
    assert partition.processor.stop_waiting(NOW).outcomes == []
    partition.processor.due(NOW + 500)
    again = partition.take().works[0].envelope
    assert again is not None
    assert again.attempt == 2


# Outcomes


def test_an_offset_is_complete_only_when_its_outcome_was_settled() -> None:
    partition = Partition(RetryPolicy("10s"))
    partition.offer("a", "b")
    first, second = partition.take(), partition.take()
    parked = partition.complete(first, Retry())
    done = partition.complete(second, None)
    partition.processor.settle(done.done)
    position = partition.tracker.position()
    assert position is not None
    assert position.offset == 0
    partition.processor.settle([outcome.offset for outcome in parked.outcomes])
    position = partition.tracker.position()
    assert position is not None
    assert position.offset == 2


def test_the_hop_carries_the_record_byte_for_byte_with_attempt_due_and_error() -> None:
    partition = Partition(RetryPolicy("10s"))
    headers = (("user", b"\x00\xff"), ("user", None))
    record = Record("t", 0, 5, b"\xf0", None, headers, 123)
    partition.processor.offer([record], NOW)
    report = partition.complete(partition.take(), Retry("not yet"), now=NOW + 7)
    (write,) = report.outcomes[0].writes
    assert (write.topic, write.key, write.value) == ("app.retry.10s", b"\xf0", None)
    assert write.headers[:2] == headers
    envelope = parse(write.headers)
    assert (envelope.attempt, envelope.due) == (2, NOW + 10_007)
    assert (envelope.origin_topic, envelope.origin_partition, envelope.origin_offset) == ("t", 0, 5)
    assert (envelope.first_received, envelope.origin_timestamp) == (NOW, 123)
    assert (envelope.error_type, envelope.error_message) == ("redrive.signals.Retry", "not yet")


def test_results_of_a_first_part_are_taken_while_the_lot_goes_on() -> None:
    partition = Partition(RetryPolicy())
    partition.offer("k", "k", "k")
    lot = partition.take()
    lot.results.append(None)
    assert partition.processor.collect(NOW).done == [0]
    assert partition.processor.next() is None
    assert partition.complete(lot, None).done == [1]
    assert partition.running_next() == [2]


@pytest.mark.parametrize("result", [Retry("not yet"), PENDING])
def test_what_is_not_done_is_taken_when_its_lot_ends(result: Result) -> None:
    partition = Partition(RetryPolicy("10s"), ack="manual")
    partition.offer("k", "k")
    lot = partition.take()
    lot.results.append(result)
    assert not partition.processor.collect(NOW)
    assert len(partition.processor.lots) == 1


# Recovery and acknowledgement


def test_a_failed_recovery_keeps_the_count_and_waits() -> None:
    partition = Partition(RetryPolicy(), recovers=True)
    partition.offer("k", "k")
    assert not partition.complete(partition.take(), ValueError("no"))
    partition.processor.due(NOW)
    recovery = partition.take()
    assert recovery.recovering
    assert not partition.complete(recovery, OSError("the recovery failed"))
    partition.processor.due(NOW + 999)
    assert partition.processor.next() is None
    partition.processor.due(NOW + 1000)
    again = partition.take()
    assert again.recovering
    report = partition.complete(again, None)
    assert [outcome.reason for outcome in report.outcomes] == ["exhausted"]
    envelope = parse(report.outcomes[0].writes[0].headers)
    assert (envelope.attempt, envelope.error_message) == (1, "no")


def test_a_key_waits_for_the_acknowledgement_of_its_record() -> None:
    partition = Partition(RetryPolicy(), ack="manual")
    partition.offer("k", "k", "other")
    lot = partition.take()
    context = partition.call(lot)
    partition.complete(lot, PENDING)
    assert partition.running_next() == [2]
    assert partition.running_next() == []
    assert partition.acknowledge(lot, context).done == [0]
    assert partition.running_next() == [1]


def test_an_acknowledgement_before_the_end_of_its_lot_lets_one_record_of_its_key_begin() -> None:
    partition = Partition(RetryPolicy(), ack="manual")
    partition.offer("k", "k", "k")
    lot = partition.take()
    context = partition.call(lot)
    lot.results.append(PENDING)
    partition.processor.collect(NOW)
    partition.acknowledge(lot, context)
    assert partition.running_next() == []
    assert partition.complete(lot).done == [0]
    assert partition.running_next() == [1]
    assert partition.running_next() == []


def test_an_acknowledgement_that_comes_before_the_handler_returns_counts() -> None:
    partition = Partition(RetryPolicy(), ack="manual")
    partition.offer("k")
    lot = partition.take()
    assert not partition.acknowledge(lot, partition.call(lot))
    assert partition.complete(lot, PENDING).done == [0]


@pytest.mark.parametrize("words", ["done", "failed"])
def test_a_call_that_was_heard_or_timed_out_says_nothing_about_the_next_one(words: str) -> None:
    policy = RetryPolicy(first=InPlace(3, WAIT))
    partition = Partition(policy, ack="manual", timeout="30s")
    word = None if words == "done" else ValueError("too late")
    partition.offer("k")
    first = partition.take()
    late = partition.call(first)
    partition.complete(first, PENDING)
    partition.processor.due(NOW + 30_000)
    partition.processor.due(NOW + 35_000)
    second = partition.take()
    current = partition.call(second)
    assert not partition.acknowledge(first, late, word)
    assert not partition.complete(second, PENDING)
    assert not partition.acknowledge(first, late, word)
    assert partition.acknowledge(second, current).done == [0]
    assert not partition.acknowledge(second, current)


def test_an_acknowledgement_that_does_not_come_in_time_is_a_failure() -> None:
    partition = Partition(RetryPolicy(), ack="manual", timeout="30s")
    partition.offer("k")
    partition.complete(partition.take(), PENDING)
    assert partition.processor.next_due() == NOW + 30_000
    report = partition.processor.due(NOW + 30_000)
    assert [outcome.kind for outcome in report.outcomes] == ["bury"]
    envelope = parse(report.outcomes[0].writes[0].headers)
    assert envelope.error_type == "redrive.errors.HandlerTimeout"


@pytest.mark.parametrize("ordering", ["key", "partition", "unordered"])
def test_a_hold_reaches_what_is_due_and_waits_for_a_thread(ordering: Ordering) -> None:
    partition = Partition(RetryPolicy("10s"), delay=10_000, ordering=ordering)
    parked_at(partition, due=NOW, appended=NOW - 10_000)
    begun = partition.take()
    for offset in (1, 2, 3):
        parked_at(partition, due=NOW, appended=NOW - 10_000, offset=offset)
    match = Match(topics=("app.retry.10s",))
    hold = ParkedRule(id="1", kind="hold", match=match, by="me", at=1)
    partition.processor.scope.parked_rules = (hold,)
    report = partition.processor.look_again(NOW)
    assert [(each.kind, each.offset) for each in report.outcomes] == [
        ("hop", 1),
        ("hop", 2),
        ("hop", 3),
    ]
    assert partition.processor.next() is None
    partition.complete(begun, None)
    assert partition.processor.next() is None
    partition.processor.scope.parked_rules = ()
    parked_at(partition, due=NOW, appended=NOW - 10_000, offset=4)
    assert partition.running_next() == [4]


def test_what_waits_is_not_forgotten_when_deciding_about_it_again_fails(monkeypatch) -> None:
    partition = Partition(RetryPolicy("10s"), delay=10_000)
    for offset in range(3):
        parked_at(partition, due=NOW + 3000, appended=NOW, offset=offset)
    assert partition.processor.not_due == 3
    release, calls = Reception.release, []

    def fails_at_the_second(self, *arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyError("a mistake of ours")
        return release(self, *arguments)

    monkeypatch.setattr(Reception, "release", fails_at_the_second)
    with pytest.raises(KeyError):
        partition.processor.look_again(NOW)
    assert partition.processor.not_due == 3


def test_results_that_come_after_the_partition_was_taken_away_do_not_count() -> None:
    partition = Partition(RetryPolicy("10s"))
    partition.offer("a", "b")
    first, second = partition.take(), partition.take()
    partition.processor.close()
    assert first.cancelled
    assert not partition.complete(first, None)
    assert not partition.complete(second, Retry())
