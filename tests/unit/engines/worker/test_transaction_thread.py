"""Outputs and progress of completed prefixes, each in one transaction: without a broker."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from redrive import App
from redrive.engines.figures import Figures
from redrive.engines.worker import transaction_thread
from redrive.engines.worker.counting import Counting
from redrive.engines.worker.partition import Partition
from redrive.engines.worker.transaction_thread import TransactionThread
from redrive.errors import RedriveError
from redrive.kafka.errors import publish_error, refusal
from redrive.kafka.room import Room
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.outcomes.report import Report
from redrive.processing.progress.done_beyond import still_at
from redrive.record import Record, TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import REFUSED_LONGEST

PLACE = TopicPartition("t", 0)
START = Position(0)


class Producer:
    """Takes note of transactions; fails when it shall."""

    def __init__(self):
        self.room = Room()
        self.transactions = []
        self.begun_with = []
        self.refusing: dict[str, str] = {}
        self.failing = False
        self.begun = threading.Event()
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.taken = threading.Condition()

    def commit(self, writes, positions, membership):
        self.begun.set()
        assert self.may_commit.wait(30)
        with self.taken:
            self.begun_with.append([write.value for write in writes])
            if self.failing:
                raise RedriveError("the broker does not want to")
            refused = [write for write in writes if write.topic in self.refusing]
            if refused:
                why = [publish_error(each.topic, 0, self.refusing[each.topic]) for each in refused]
                raise refusal(refused, why, len(writes))
            self.transactions.append(([write.value for write in writes], dict(positions)))
            self.taken.notify_all()


class Till:
    """A partition and its transactions."""

    def __init__(self, start=START):
        self.failures = []
        self.deaths = []
        self.failed = threading.Event()
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        for topic in ("out", "rare"):
            self.broker.create(topic)
        self.sent_to: set[str] = set()
        self.counting = Counting(Figures())
        self.delivering = TransactionThread(
            self.broker,
            self.clock,
            self.counting,
            self.deaths.append,
            self.sent_to,
            on_failure=self._on_failure,
        )
        app = App("shop", delivery="transaction")
        app.handler("in")(lambda record, ctx: None)
        self.partition = Partition(Scope(app, {"in": "an id"}), PLACE, start, delay=None)
        self.producer = Producer()
        self.delivering.open(self.partition, self.producer)
        self.delivering.note_membership("member")

    def open_another(self):
        place = TopicPartition("t", 1)
        another = Partition(self.partition.processor.scope, place, Position(0), delay=None)
        self.delivering.open(another, Producer())
        self.delivering.note_membership("member")
        return another

    def receive(self, *offsets):
        self.partition.tracker.receive(list(offsets))

    def done(self, *offsets, sends=True, to="out", of=None):
        report = Report()
        self.sent_to.add(to)
        for offset in offsets:
            if sends:
                write = Write(to, None, b"%d" % offset)
                report.sent.append((offset, [write], Record("in", 0, offset)))
            else:
                report.done.append(offset)
        self.delivering.add((of or self.partition).processor, report)

    def finish(self, meanwhile=lambda: None):
        self.delivering.finish([self.partition], monotonic() + 30, meanwhile)
        return self.producer.transactions

    def wait(self, condition):
        """Until it is so; whoever waits is told by nobody."""
        end = monotonic() + 30
        while not condition():
            assert monotonic() < end
            threading.Event().wait(0.001)

    @property
    def values(self):
        return [value for values, _ in self.producer.transactions for value in values]

    def _on_failure(self, partition, error):
        self.failures.append((partition, str(error)))
        self.failed.set()


@pytest.fixture
def till():
    made = Till()
    yield made
    assert made.delivering.close(30)
    assert made.deaths == []


@pytest.fixture
def noted():
    """A partition of which 2, 3 and 6 were done before, beyond the committed offset."""
    made = Till(still_at(0, [(2, 4), (6, 7)]))
    yield made
    assert made.delivering.close(30)
    assert made.deaths == []


def test_what_a_run_before_has_noted_as_done_stays_noted_until_a_transaction_has_passed_it(noted):
    assert noted.partition.tracker.receive(range(9)) == [0, 1, 4, 5, 7, 8]
    noted.done(0, 7)
    assert noted.finish()[-1][1] == {PLACE: still_at(1, [(2, 4), (6, 7)])}
    noted.done(1)
    assert noted.finish()[-1][1] == {PLACE: still_at(4, [(6, 7)])}
    noted.done(4, 5, 8)
    assert noted.finish()[-1][1] == {PLACE: Position(9)}
    assert sorted(noted.values) == [b"0", b"1", b"4", b"5", b"7", b"8"]


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


@pytest.mark.parametrize("limits", [{"TRANSACTION_WRITES": 2}, {"TRANSACTION_BYTES": 200}])
def test_a_transaction_takes_no_more_than_there_is_room_for(till, monkeypatch, limits):
    for name, limit in limits.items():
        monkeypatch.setattr(f"redrive.kafka.room.{name}", limit)
    till.producer.may_commit.clear()  # until all of it is there
    till.receive(0, 1, 2, 3, 4, 6, 7)
    till.done(2, 1, 0)
    till.done(3, sends=False)
    till.done(7, 6, 4)
    till.producer.may_commit.set()
    till.finish()
    transactions = till.producer.transactions
    assert [value for values, _ in transactions for value in values] == [
        b"0", b"1", b"2", b"4", b"6", b"7",
    ]  # fmt: skip
    assert all(len(values) <= 2 for values, _ in transactions)
    for values, positions in transactions:
        assert not values or positions[PLACE].offset > int(values[-1])
    assert transactions[-1][1] == {PLACE: Position(8)}
    assert till.partition.buffer.records == till.partition.buffer.bytes == 0


def test_one_record_with_more_messages_than_fit_has_a_transaction_to_itself(till, monkeypatch):
    monkeypatch.setattr("redrive.kafka.room.TRANSACTION_WRITES", 2)
    till.receive(0, 1)
    report = Report()
    for offset in (0, 1):
        writes = [Write("out", None, b"%d" % offset)] * 3
        report.sent.append((offset, writes, Record("in", 0, offset)))
    till.delivering.add(till.partition.processor, report)
    assert till.finish() == [
        ([b"0"] * 3, {PLACE: Position(1)}),
        ([b"1"] * 3, {PLACE: Position(2)}),
    ]


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
    scope = till.partition.processor.scope
    came = Partition(scope, TopicPartition("t", 1), Position(7), delay=None)
    came.committed = None  # as with every partition that comes
    producer = Producer()
    till.delivering.open(came, producer)
    till.done(0)  # others are under way meanwhile
    assert producer.transactions == []  # nobody knows yet as which member
    till.delivering.note_membership("a newer one")
    with producer.taken:
        assert producer.taken.wait_for(lambda: producer.transactions, 30)
    assert producer.transactions == [([], {came.place: Position(7)})]


def test_a_transaction_that_does_not_end_is_not_waited_for_for_ever(till):
    till.finish()
    till.producer.begun.clear()
    till.producer.may_commit.clear()
    till.receive(0)
    till.done(0)
    assert till.producer.begun.wait(30)
    try:
        assert not till.delivering.close(0)
    finally:
        till.producer.may_commit.set()


def test_at_the_end_nothing_is_begun_once_no_more_is_taken(monkeypatch):
    """A transaction begun then, or cancelled before it began, would end the worker by an error."""
    before, alive = {*threading.enumerate()}, []

    class Beside(ThreadPoolExecutor):
        def shutdown(self, **options):
            others = {each.name for each in {*threading.enumerate()} - before}
            alive.append("redrive-delivery" in others)
            super().shutdown(**options)

    monkeypatch.setattr(transaction_thread, "ThreadPoolExecutor", Beside)
    till = Till()
    till.receive(0)
    till.done(0)
    assert till.delivering.close(30)
    assert alive == [False]
    assert till.deaths == []


# Refused writes


def test_a_refused_write_holds_its_record_and_those_before_it_are_committed(till, caplog):
    till.broker.delete("rare")
    till.receive(0, 1, 2, 3)
    till.done(0, 1)
    till.done(2, to="rare")
    till.done(3)
    till.wait(lambda: till.delivering.refused == 1)
    till.finish()
    assert till.values == [b"0", b"1"]
    assert till.partition.committed == Position(2)
    assert till.delivering.waiting == till.partition.in_flight == 2
    (said,) = caplog.messages
    assert said.startswith("a write to rare was refused")
    assert till.delivering.refusal in said
    till.broker.create("rare")
    till.clock.advance(REFUSED_LONGEST)
    till.wait(lambda: till.partition.committed == Position(4))
    till.finish()
    assert till.values == [b"0", b"1", b"2", b"3"]
    assert till.counting.figures.total("done") == 4
    assert (till.delivering.refused, till.delivering.waiting, till.partition.in_flight) == (0, 0, 0)
    assert (till.failures, till.partition.buffer.bytes) == ([], 0)
    assert b"2" not in [value for values in till.producer.begun_with[:-1] for value in values]


def test_a_transaction_that_the_broker_refuses_is_tried_again_later(till):
    """Its topic is there, but does not take it: nobody is called again for its records."""
    till.producer.refusing["out"] = "_MSG_TIMED_OUT"
    till.receive(0)
    till.done(0)
    till.wait(lambda: till.delivering.refused == 1)
    tries = len(till.producer.begun_with)
    while len(till.producer.begun_with) < tries + 3:
        till.clock.advance(REFUSED_LONGEST)
        assert till.delivering.refused == 1  # steady, also while it is tried
    till.producer.refusing.clear()
    while till.delivering.refused:
        till.clock.advance(REFUSED_LONGEST)
    till.finish()
    assert till.values == [b"0"]
    assert till.failures == []


def test_a_topic_that_takes_writes_of_others_is_not_tried_the_sooner_for_it(till):
    """Else as many transactions are taken back as others commit."""
    till.producer.refusing["out"] = "NOT_ENOUGH_REPLICAS"
    till.receive(0)
    till.done(0)
    till.wait(lambda: till.delivering.refused == 1)
    other = till.open_another()
    other.tracker.receive([0])
    till.done(0, of=other)
    till.wait(lambda: till.counting.figures.total("done") == 1)
    assert "NOT_ENOUGH_REPLICAS" in till.delivering.refusal
    till.producer.refusing.clear()
    till.clock.advance(REFUSED_LONGEST)
    till.wait(lambda: till.counting.figures.total("done") == 2)
    assert till.delivering.refusal == ""


def test_whoever_waits_for_the_end_finds_everything_counted(till, monkeypatch):
    counted, waited = threading.Event(), []
    ended = till.counting.ended

    def count(processor, number):
        waiting = threading.Thread(target=till.finish)
        waiting.start()
        waiting.join(0.05)
        waited.append(waiting.is_alive())
        ended(processor, number)
        counted.set()

    monkeypatch.setattr(till.counting, "ended", count)
    till.receive(0)
    till.done(0)
    assert counted.wait(30)
    assert waited == [True]


def test_a_message_that_is_never_taken_ends_its_record_within_the_same_prefix(till):
    till.producer.refusing["rare"] = "MSG_SIZE_TOO_LARGE"
    till.receive(0, 1, 2)
    till.done(0, 2)
    till.done(1, to="rare")
    till.wait(lambda: till.partition.committed == Position(3))
    (letter,) = [each for each in till.values if each not in (b"0", b"2")]
    assert letter is None  # the record itself, which is empty, in the dead topic
    till.wait(lambda: till.counting.figures.total("bury") == 1)
    assert till.counting.figures.total("done") == 2
    assert till.delivering.refused == 0


def test_a_write_that_is_not_allowed_ends_the_worker(till):
    till.producer.refusing["out"] = "TOPIC_AUTHORIZATION_FAILED"
    till.receive(0)
    till.done(0)
    assert till.failed.wait(30)
    ((_, told),) = till.failures
    assert "grant WRITE on topic out" in told


@pytest.mark.parametrize("limits", [(10, 10**9), (10**9, 10 * 71)])
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
    assert till.partition.in_flight == till.partition.buffer.bytes == 0


def test_whoever_waits_for_a_transaction_sees_to_other_things_meanwhile(till):
    till.producer.may_commit.clear()
    till.receive(0)
    till.done(0)
    looks = []

    def meanwhile():
        looks.append(True)
        if len(looks) == 3:
            till.producer.may_commit.set()

    assert till.finish(meanwhile)[-1][0] == [b"0"]
    assert len(looks) >= 3
