"""What is kept of a partition until its transaction is committed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redrive.delivery.refusing_topics import RefusingTopics
from redrive.delivery.transaction_buffer import TransactionBuffer
from redrive.delivery.transactions import Transactions
from redrive.errors import PublishError, RedriveError
from redrive.kafka.errors import NotAllowedError, publish_error, refusal
from redrive.kafka.room import Room
from redrive.ports import Position
from redrive.processing.outcomes.report import Outcome, Report
from redrive.record import Record, TopicPartition, Write
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import TRANSACTION_PARTS


@pytest.fixture
def buffer():
    clock = VirtualClock()
    return TransactionBuffer(None, Room(), RefusingTopics(lambda _: {}, clock), clock)


def ended(*offsets, done=(), to="out"):
    report = Report()
    report.done = [*done]
    report.sent = [(n, [Write(to, None, b"%d" % n)], Record("in", 0, n)) for n in offsets]
    return report


def refused(prefix, *, topic="rare", error="UNKNOWN_TOPIC_OR_PART"):
    writes = [write for write in prefix.writes if write.topic == topic]
    return refusal(writes, [publish_error(topic, 0, error) for _ in writes], len(prefix.writes))


def test_a_prefix_is_what_has_ended_below_an_offset_in_its_order(buffer):
    buffer.add(ended(3, 0, done=[1, 4]))
    buffer.add(ended(2))
    prefix = buffer.cut(3)
    assert [write.value for write in prefix.writes] == [b"0", b"2"]
    assert (prefix.end, prefix.done, prefix.records) == (3, [1], 3)
    buffer.let_go()
    rest = buffer.cut(5)
    assert ([write.value for write in rest.writes], rest.done) == ([b"3"], [4])


def test_what_there_is_no_room_for_is_left_for_the_next(buffer, monkeypatch):
    monkeypatch.setattr("redrive.kafka.room.TRANSACTION_WRITES", 2)
    buffer.add(ended(4, 2, 1, 0, done=[3, 5]))
    first = buffer.cut(6)
    assert (first.end, first.done, first.records) == (2, [], 2)
    buffer.let_go()
    second = buffer.cut(6)
    assert (second.end, sorted(second.done), second.records) == (6, [3, 5], 4)


def test_it_takes_room_until_it_is_committed(buffer):
    size = buffer.add(ended(0, 1, 2, done=[3]))
    assert (buffer.records, buffer.bytes) == (4, size)
    buffer.cut(2)
    buffer.add(ended(4))
    assert (buffer.records, buffer.bytes) == (5, size // 3 * 4)
    buffer.let_go()
    assert (buffer.records, buffer.bytes) == (3, size // 3 * 2)
    buffer.cut(5)
    buffer.let_go()
    assert (buffer.records, buffer.bytes) == (0, 0)


def test_from_the_first_record_that_has_to_wait_on_nothing_is_taken(buffer):
    size = buffer.add(ended(0, 2, 3, done=[1, 4])) + buffer.add(ended(5, to="rare"))
    buffer.add(ended(6, to="rare"))
    buffer.put_back(refused(buffer.cut(6)))
    assert buffer.reachable(7) == buffer.hold.offset == 5
    assert (buffer.hold.topics, buffer.hold.records) == ({"rare"}, 1)
    assert (buffer.refused, buffer.waiting, buffer.records) == (2, 2, 7)
    assert buffer.bytes > size
    before = buffer.cut(buffer.reachable(7))
    assert [write.value for write in before.writes] == [b"0", b"2", b"3"]
    buffer.let_go()
    buffer.waits = False  # the topic takes writes again
    assert buffer.cut(buffer.reachable(7)).records == 2
    assert (buffer.refused, buffer.waiting) == (2, 2)  # also while they are tried
    buffer.let_go()
    assert (buffer.hold, buffer.refused, buffer.waiting, buffer.bytes) == (None, 0, 0, 0)


class Producer:
    """Raises what it is told to."""

    def __init__(self):
        self.error = None
        self.commits = []

    def commit(self, writes, positions):
        if self.error is not None:
            raise self.error
        self.commits.append(([write.value for write in writes], positions))


PLACE = TopicPartition("in", 0)


@pytest.fixture
def world(buffer):
    producer, completed = Producer(), []

    def submit(call, *arguments):
        return SimpleNamespace(result=lambda: call(*arguments), done=lambda: True)

    transactions = Transactions(
        producer,
        PLACE,
        at=Position,
        topics=RefusingTopics(lambda _: {}, VirtualClock()),
        submit=submit,
        completed=lambda position, part: completed.append((position, part, transactions.under_way)),
    )
    return SimpleNamespace(producer=producer, completed=completed, transactions=transactions)


def test_writes_and_position_are_committed_together_and_complete_before_it_has_ended(buffer, world):
    buffer.add(ended(0, 1))
    prefix = buffer.cut(2)
    world.transactions.begin(prefix)
    assert world.transactions.under_way is prefix
    assert world.transactions.settle() is None
    assert world.producer.commits == [([b"0", b"1"], {PLACE: Position(2)})]
    assert world.completed == [(Position(2), prefix, prefix)]
    assert world.transactions.under_way is None


def test_refused_writes_are_returned_and_every_other_error_is_raised(buffer, world):
    buffer.add(ended(0, to="rare"))
    prefix = buffer.cut(1)
    world.producer.error = refused(prefix)
    world.transactions.begin(prefix)
    assert world.transactions.settle() is world.producer.error
    others = {
        NotAllowedError: refused(prefix, error="TOPIC_AUTHORIZATION_FAILED"),
        RedriveError: RedriveError("the broker does not want to"),
    }
    for kind, world.producer.error in others.items():
        world.transactions.begin(prefix)
        with pytest.raises(kind):
            world.transactions.settle()
        assert world.transactions.under_way is None
    assert world.completed == []


class Searching:
    """Takes no message that says "bad", and finds the first one as a real producer does."""

    def __init__(self):
        self.transactions = 0
        self.written = []

    def commit(self, writes, positions):
        suspects = sum(write.topic == "out" for write in writes)
        bad = next((write for write in writes if write.value == b"bad"), None)
        while bad is not None and suspects > 1:  # taken back, and written again in parts
            self.transactions += 1
            suspects //= TRANSACTION_PARTS
        self.transactions += 1
        if bad is not None:
            raise refusal([bad], [publish_error("out", 0, "MSG_SIZE_TOO_LARGE")], len(writes))
        self.written += [write.value for write in writes]


class Burying:
    """A processor that buries what its topic does not take."""

    def refused(self, sent, error, now):
        offset, _, record = sent
        letter = Write("dead", None, b"dead %d" % offset)
        return Outcome("bury", offset, record, [letter], "refused", error=error)


@pytest.mark.parametrize(
    ("bad", "most"),
    [({200}, 5), ({100, 300}, 9), (set(range(400)), 430), (set(range(0, 400, 2)), 404)],
)
def test_many_messages_that_are_refused_cost_few_transactions_each(bad, most):
    """Not a search for each, all of which would begin at the first record."""
    clock = VirtualClock()
    topics = RefusingTopics(lambda _: {}, clock)
    buffer = TransactionBuffer(Burying(), Room(), topics, clock)
    report = Report()
    report.sent = [
        (n, [Write("out", None, b"bad" if n in bad else b"%d" % n)], Record("in", 0, n))
        for n in range(400)
    ]
    buffer.add(report)
    producer = Searching()
    while buffer.records:
        try:
            producer.commit(buffer.cut(400).writes, {})
        except PublishError as error:
            buffer.put_back(error)
        else:
            buffer.let_go()
    expected = [b"dead %d" % n if n in bad else b"%d" % n for n in range(400)]
    assert producer.written == expected
    assert producer.transactions <= most
    assert not buffer.in_small_parts or len(bad) > 2
