"""Two steps instead of one: results are judged, and only what became durable is acted on."""

from __future__ import annotations

import pytest

from redrive import App, Backoff, GiveBack, InPlace, Retry, RetryPolicy
from redrive.errors import Conflict
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.outcomes.judged import Judged
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import DUPLICATE, Result
from redrive.record import Record, TopicPartition

NOW = 1_000_000
WAIT = Backoff("5s", jitter=0)


class Partition:
    """One partition, whose lots are judged record by record."""

    def __init__(self, policy: RetryPolicy, *, recovers: bool = False) -> None:
        self.app = App("app", concurrency=4)
        self.app.handler("t", retry=policy)(lambda record, ctx: None)
        if recovers:
            self.app.recover(lambda record, error, ctx: None)
        self.tracker = AckTracker()
        self.processor = PartitionProcessor(
            Scope(self.app, {}), TopicPartition("t", 0), self.tracker
        )

    def offer(self, *keys: str) -> None:
        records = [Record("t", 0, n, key.encode(), b"v") for n, key in enumerate(keys)]
        self.processor.offer(records, NOW)

    def take(self) -> Lot:
        lot = self.processor.next()
        assert lot is not None
        return lot

    def judge(self, lot: Lot, *results: Result) -> Judged:
        judged = Judged()
        for work, result in zip(lot.works, results, strict=False):
            judged.judge(work, result, NOW, self.processor.scope.verdicts)
        return judged

    def commit(self, lot: Lot, judged: Judged) -> None:
        whole = Judged()
        whole.add(judged)
        self.processor.settle(judged.report.offsets)
        self.processor.finish(lot, whole)

    def running_next(self) -> list[int]:
        lot = self.processor.next()
        return [] if lot is None else [work.offset for work in lot.works]


def test_judging_settles_nothing_and_frees_no_lane() -> None:
    partition = Partition(RetryPolicy())
    partition.offer("k", "k")
    lot = partition.take()
    judged = partition.judge(lot, None, None)
    assert judged.report.done == [0, 1]
    assert partition.tracker.in_flight == 2
    assert partition.running_next() == []


def test_what_was_judged_and_committed_is_settled_and_the_rest_goes_back_to_its_place() -> None:
    partition = Partition(RetryPolicy())
    partition.offer("k", "k", "k")
    lot = partition.take()
    partition.commit(lot, partition.judge(lot, None))
    assert partition.tracker.in_flight == 2
    assert partition.running_next() == [1, 2]


@pytest.mark.parametrize(
    "policy", [RetryPolicy(first=InPlace(3, WAIT)), RetryPolicy("5m"), RetryPolicy()]
)
def test_a_judgement_that_is_taken_back_counts_against_nobody(policy: RetryPolicy) -> None:
    partition = Partition(policy, recovers=True)
    partition.offer("k")
    lot = partition.take()
    [work] = lot.works
    judged = partition.judge(lot, Retry("no"))
    judged.undo()
    assert (work.tries, work.envelope, work.ending) == (1, None, None)
    partition.processor.finish(lot, Judged())
    assert partition.running_next() == [0]


def test_a_record_that_waits_in_place_holds_its_own_lane_only_when_the_lot_is_finished() -> None:
    partition = Partition(RetryPolicy(first=InPlace(3, WAIT)))
    partition.offer("k", "k")
    lot = partition.take()
    judged = partition.judge(lot, Retry("not yet"))
    assert not judged.goes_on(lot.works[0])
    partition.commit(lot, judged)
    assert partition.running_next() == []
    partition.processor.due(NOW + 5000)
    assert partition.running_next() == [0, 1]


def test_those_behind_a_parked_record_go_on() -> None:
    partition = Partition(RetryPolicy("5m"))
    partition.offer("k", "k")
    lot = partition.take()
    assert partition.judge(lot, Retry("not yet")).goes_on(lot.works[0])


def test_giving_back_happens_with_the_finish_and_takes_those_behind_along() -> None:
    partition = Partition(RetryPolicy(first=GiveBack(3, WAIT)))
    partition.offer("k", "k", "k")
    lot = partition.take()
    judged = partition.judge(lot, None, Retry("again"))
    assert partition.processor.take_seek() is None
    assert not judged.goes_on(lot.works[1])
    partition.commit(lot, judged)
    assert partition.processor.take_seek() == 1
    assert partition.tracker.in_flight == 0
    assert partition.running_next() == []


def test_a_detained_record_waits_and_is_never_parked_for_it() -> None:
    partition = Partition(RetryPolicy("5m"))
    partition.offer("k", "k")
    lot = partition.take()
    partition.processor.scope.envelopes.of(lot.works[0])
    whole = Judged()
    whole.detain(lot.works[0], NOW + 1000)
    partition.processor.finish(lot, whole)
    assert partition.running_next() == []
    assert partition.processor.stop_waiting(NOW).outcomes == []
    partition.processor.due(NOW + 1000)
    assert partition.running_next() == [0, 1]


def test_a_duplicate_is_an_outcome_without_writes() -> None:
    partition = Partition(RetryPolicy("5m"))
    partition.offer("k")
    lot = partition.take()
    [outcome] = partition.judge(lot, DUPLICATE).report.outcomes
    assert (outcome.kind, outcome.offset, outcome.writes) == ("duplicate", 0, ())


def test_a_conflict_is_buried_whatever_the_policy_would_retry() -> None:
    partition = Partition(RetryPolicy("5m"))
    partition.offer("k")
    lot = partition.take()
    [outcome] = partition.judge(lot, Conflict("two payloads")).report.outcomes
    assert (outcome.kind, outcome.reason) == ("bury", "conflict")
