"""Outputs and progress of completed prefixes, each in one transaction: without a broker."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from redrive import App
from redrive.engines.figures import Figures
from redrive.engines.worker.figures import Counting
from redrive.engines.worker.partition import Partition
from redrive.engines.worker.transacting import TransactionDelivering
from redrive.errors import RedriveError
from redrive.ports import Position
from redrive.processing.outcomes import Report
from redrive.processing.scope import Scope
from redrive.record import Record, TopicPartition, Write

PLACE = TopicPartition("t", 0)


class Producer:
    """Takes note of transactions; fails when it shall."""

    def __init__(self):
        self.transactions = []
        self.failing = False
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.taken = threading.Condition()

    def commit(self, writes, positions, membership):
        assert self.may_commit.wait(30)
        with self.taken:
            if self.failing:
                raise RedriveError("the broker does not want to")
            self.transactions.append(([write.value for write in writes], dict(positions)))
            self.taken.notify_all()


class Till:
    """A partition and its transactions."""

    def __init__(self):
        self.failures = []
        self.deaths = []
        self.failed = threading.Event()
        self.delivering = TransactionDelivering(
            Counting(Figures()), self._on_failure, self.deaths.append
        )
        app = App("shop", delivery="transaction")
        self.partition = Partition(Scope(app, {}), PLACE, Position(0), delay=None)
        self.producer = Producer()
        self.delivering.open(self.partition, self.producer)
        self.delivering.note_membership("member")

    def receive(self, *offsets):
        self.partition.tracker.receive(list(offsets))

    def done(self, *offsets, sends=True):
        report = Report()
        for offset in offsets:
            if sends:
                write = Write("out", None, b"%d" % offset)
                report.sent.append((offset, [write], Record("in", 0, offset)))
            else:
                report.done.append(offset)
        self.delivering.take(self.partition.processor, report)

    def finish(self):
        self.delivering.finish([self.partition], monotonic() + 30)
        return self.producer.transactions

    def _on_failure(self, partition, error):
        self.failures.append((partition, str(error)))
        self.failed.set()


@pytest.fixture
def till():
    made = Till()
    yield made
    made.delivering.close()


def test_what_was_sent_and_the_offset_go_into_one_transaction(till):
    till.receive(0, 1, 2)
    till.done(0, 1, 2)
    written = [value for values, _ in till.finish() for value in values]
    assert written == [b"0", b"1", b"2"]
    assert till.producer.transactions[-1][1] == {PLACE: Position(3)}
    assert till.partition.committed == Position(3)


def test_a_transaction_takes_a_contiguous_prefix_and_nothing_else(till):
    till.receive(0, 1, 2)
    till.done(0, 2)
    till.finish()
    values, positions = till.producer.transactions[-1]
    assert (values, positions) == ([b"0"], {PLACE: Position(1)})
    till.done(1)
    till.finish()
    values, positions = till.producer.transactions[-1]
    assert (values, positions) == ([b"1", b"2"], {PLACE: Position(3)})


def test_records_without_messages_are_progress_too(till):
    till.receive(0, 1)
    till.done(0, 1, sends=False)
    till.finish()
    assert till.producer.transactions[-1] == ([], {PLACE: Position(2)})


def test_after_a_transaction_that_failed_nothing_of_the_partition_is_written(till):
    till.producer.failing = True
    till.receive(0, 1)
    till.done(0)
    assert till.failed.wait(30)
    till.producer.failing = False
    till.done(1)
    till.finish()
    assert till.producer.transactions == []
    assert till.failures == [(till.partition, "the broker does not want to")]


def test_what_comes_after_the_partition_went_is_let_go_of(till):
    till.receive(0)
    till.delivering.forget(till.partition)
    till.done(0)
    assert till.partition.tracker.prefix == 0
    assert till.finish() == []


def test_where_a_partition_begins_is_committed_at_once(till):
    """And not with the first outcome: until then "latest" would be another place at a restart."""
    came = Partition(Scope(App("shop"), {}), TopicPartition("t", 1), Position(7), delay=None)
    came.committed = None  # as with every partition that comes
    producer = Producer()
    till.delivering.open(came, producer)
    till.done(0)  # others are under way meanwhile
    assert producer.transactions == []  # nobody knows yet as which member
    till.delivering.note_membership("a newer one")
    with producer.taken:
        assert producer.taken.wait_for(lambda: producer.transactions, 30)
    assert producer.transactions == [([], {came.place: Position(7)})]


@pytest.mark.parametrize("limits", [(10, 10**9), (10**9, 10)])
def test_what_waits_for_its_transaction_takes_room(till, limits):
    """While one takes long, its partition must not be read on without end."""
    till.finish()
    till.producer.may_commit.clear()
    for offset in range(9):
        till.receive(offset)
        till.done(offset)
    assert not till.partition.wants_pause(*limits)
    till.receive(9)
    till.done(9)
    assert till.partition.wants_pause(*limits)
    till.producer.may_commit.set()
    till.finish()
    assert not till.partition.wants_pause(*limits)
    assert till.partition.in_flight == till.partition.kept_bytes == 0
