"""Kafka transactions: messages and progress, all or nothing, and for one owner at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import privates
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from running import wait_for_markers

from redrive import failpoints
from redrive.errors import PublishError
from redrive.kafka import transactional_producer
from redrive.kafka.config import consumer_config, make_handle
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.room import Room
from redrive.kafka.topic_admin import KafkaTopics
from redrive.kafka.transactional_producer import (
    FencedError,
    TransactionalProducer,
    TransactionError,
)
from redrive.ports import Position
from redrive.record import TopicPartition, Write


class Setup:
    """An app's input and output, and producers for it."""

    def __init__(
        self, settings: Any, admin: Any, log: Any, prefix: str, out: TopicPartition
    ) -> None:
        self.settings = settings
        self.admin = admin
        self.log = log
        self.prefix = prefix
        self.source = TopicPartition(out.topic, 0)
        self.out = out
        self.progress = KafkaProgress(settings, prefix)

    def producer(self) -> TransactionalProducer:
        return TransactionalProducer(self.settings, self.prefix, TopicPartition("in", 0))

    def commit(self, producer: TransactionalProducer, number: int, *more: Write) -> None:
        write = Write(self.out.topic, None, b"%d" % number, (), 0)
        producer.commit([write, *more], {self.source: Position(number + 1, f"m{number}")})

    def values(self) -> list[bytes | None]:
        wait_for_markers(self.admin, self.log, [self.out])
        return [record.value for record in self.log.read(self.out, *self.log.bounds(self.out))]

    def committed(self) -> Position | None:
        return self.progress.committed([self.source]).get(self.source)


@pytest.fixture(autouse=True)
def _nothing_learnt(monkeypatch) -> None:
    """A process learns how much a transaction takes: not from one test to the next."""
    learnt = Room()
    monkeypatch.setattr(transactional_producer, "room_of", lambda _: learnt)


@pytest.fixture
def setup(settings, admin, log, redrive_prefix, place) -> Setup:
    return Setup(settings, admin, log, redrive_prefix, place)


def test_messages_and_progress_are_committed_together(setup):
    producer = setup.producer()
    for number in range(3):
        setup.commit(producer, number)
    assert setup.values() == [b"0", b"1", b"2"]
    assert setup.committed() == Position(3, "m2")


def test_progress_without_messages(setup):
    setup.producer().commit([], {setup.source: Position(5, "p1:3:0")})
    assert setup.committed() == Position(5, "p1:3:0")


@pytest.mark.parametrize(
    ("topic", "partition", "value"),
    [("{}", 0, b"x" * 2_000_000), ("{}", 77, b"v"), ("{}.gone", None, b"v")],
    ids=["too large", "no such partition", "no such topic"],
)
def test_one_refused_message_takes_all_back(setup, topic, partition, value):
    producer = setup.producer()
    setup.commit(producer, 0)
    refused = Write(topic.format(setup.out.topic), None, value, (), partition)
    with pytest.raises(PublishError, match="was refused") as caught:
        setup.commit(producer, 1, refused)
    assert caught.value.refused == [refused]
    assert setup.values() == [b"0"]
    assert setup.committed() == Position(1, "m0")
    setup.commit(producer, 1)  # others can follow
    assert setup.values() == [b"0", b"1"]


def test_a_topic_that_was_missing_is_written_to_once_it_is_there(setup):
    """By the same producer, which librdkafka would have believe for long that it is not."""
    gone = f"{setup.prefix}.gone"
    producer, write = setup.producer(), Write(gone, None, b"v")
    with pytest.raises(PublishError, match="does not exist"):
        setup.commit(producer, 0, write)
    KafkaTopics(setup.settings).create(gone, 1, {})
    setup.commit(producer, 0, write)
    place = TopicPartition(gone, 0)
    wait_for_markers(setup.admin, setup.log, [place])
    assert [each.value for each in setup.log.read(place, *setup.log.bounds(place))] == [b"v"]


def test_a_message_that_is_not_even_taken_takes_all_back(setup):
    """Its transaction knows nothing of it, and would commit."""
    unwritable = Write(setup.out.topic, None, b"unwanted", (), 2**31)
    with pytest.raises(PublishError, match="_INVALID_ARG"):
        setup.commit(setup.producer(), 0, unwritable)
    assert setup.values() == []
    assert setup.committed() is None


def test_whoever_comes_later_fences_the_others_off(setup):
    first = setup.producer()
    setup.commit(first, 0)
    second = setup.producer()
    with pytest.raises(
        FencedError, match=r"another run of the app .* is active: it has taken over"
    ):
        setup.commit(first, 7)
    with pytest.raises((FencedError, TransactionError)):  # it is finished, whatever it says
        setup.commit(first, 8)
    setup.commit(second, 1)
    assert setup.values() == [b"0", b"1"]
    assert setup.committed() == Position(2, "m1")


# What one transaction takes


@pytest.fixture
def small(redrive_topic, settings) -> str:
    topic = redrive_topic("small", partitions=2)
    KafkaTopics(settings).configure(topic, {"max.message.bytes": "5000"})
    return topic


def test_a_topic_that_refuses_librdkafkas_batches_gets_smaller_ones(setup, small, caplog):
    writes = [Write(small, None, b"%d" % number + b"x" * 500, (), 1) for number in range(100)]
    producer = setup.producer()
    setup.commit(producer, 0, *writes)
    setup.commit(producer, 1, *writes)
    place = TopicPartition(small, 1)
    wait_for_markers(setup.admin, setup.log, [place])
    found = setup.log.read(place, *setup.log.bounds(place))
    assert [record.value for record in found] == [write.value for write in writes * 2]
    assert setup.values() == [b"0", b"1"]
    assert setup.committed() == Position(2, "m1")
    assert "refuses batches of 10000 bytes" in caplog.text
    assert "refuses batches of 1000 bytes" not in caplog.text


def test_whoever_takes_over_before_smaller_batches_are_tried_is_not_fenced_off_by_them(
    setup, small, monkeypatch
):
    """What was to be written is the other's by then, and may be committed already."""
    producer = setup.producer()

    def taken_over(_: int) -> bool:
        monkeypatch.undo()
        setup.commit(setup.producer(), 0)
        return True

    monkeypatch.setattr(producer.room, "smaller_batches", taken_over)
    writes = [Write(small, None, b"%d" % number + b"x" * 500, (), 1) for number in range(100)]
    with pytest.raises(FencedError):
        setup.commit(producer, 0, *writes)
    assert setup.values() == [b"0"]


def test_a_member_of_the_group_has_a_producer_of_smaller_batches_from_then_on(setup, small):
    writes = [Write(small, None, b"%d" % number + b"x" * 500, (), 1) for number in range(100)]
    consumer = make_handle(Consumer, consumer_config(setup.settings, setup.prefix))
    word = consumer.consumer_group_metadata()  # that nobody is in the group: so it is here
    consumer.close()
    producer = TransactionalProducer(setup.settings, setup.prefix, setup.source, member=True)
    first = producer.outlet
    for number in range(3):
        producer.commit(writes, {setup.source: Position(number + 1)}, word)
    assert producer.outlet is not first
    place = TopicPartition(small, 1)
    wait_for_markers(setup.admin, setup.log, [place])
    assert len(setup.log.read(place, *setup.log.bounds(place))) == 300


def test_of_a_batch_that_is_refused_the_message_that_is_too_large_is_named(setup, small):
    """Its twins differ in a header only."""
    writes = [Write(small, b"k", b"v", (("number", b"%d" % number),)) for number in range(20)]
    writes[7] = Write(small, b"k", b"v", (("number", b"7" * 6000),))
    with pytest.raises(PublishError, match="MSG_SIZE_TOO_LARGE") as caught:
        setup.commit(setup.producer(), 0, *writes)
    assert [id(write) for write in caught.value.refused] == [id(writes[7])]
    setup.producer()  # whatever was still open has ended by now
    assert setup.committed() is None


@pytest.mark.parametrize("bad", [[0], [41], [99], [0, 1, 50, 98, 99], list(range(0, 100, 9))])
def test_of_a_batch_that_is_refused_those_are_named_that_it_was_refused_for(
    setup, settings, redrive_topic, bad
):
    """Perhaps not all of them at once; then the rest is committed as it was."""
    topic = redrive_topic("compacted")
    KafkaTopics(settings).configure(topic, {"cleanup.policy": "compact"})
    writes = [Write(topic, None if n in bad else b"%d" % n, b"%d" % n) for n in range(100)]
    producer, named = setup.producer(), []
    while len(named) < len(bad):
        with pytest.raises(PublishError, match="INVALID_RECORD") as caught:
            setup.commit(producer, 0, *writes)
        refused = caught.value.refused
        named += [int(each.value or b"") for each in refused]
        assert setup.committed() is None
        writes = [write for write in writes if all(write is not each for each in refused)]
    assert sorted(named) == bad
    setup.commit(producer, 0, *writes)
    place = TopicPartition(topic, 0)
    wait_for_markers(setup.admin, setup.log, [place])
    found = setup.log.read(place, *setup.log.bounds(place))
    assert [record.value for record in found] == [write.value for write in writes]
    assert (setup.values(), setup.committed()) == ([b"0"], Position(1, "m0"))


def test_a_transaction_that_takes_longer_than_its_time_out_is_no_rival(setup, monkeypatch):
    def wait(_: str, flush: Callable[[], object]) -> None:
        flush()
        wait_for_markers(setup.admin, setup.log, [setup.out])  # until the broker has taken it back

    options = {"transaction.timeout.ms": 1000}
    setup.settings = replace(setup.settings, librdkafka=options)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", wait)
        with pytest.raises(TransactionError, match="which has been open for more than 1 s"):
            setup.commit(setup.producer(), 0)
    setup.commit(setup.producer(), 0)
    assert setup.values() == [b"0"]


def test_those_after_one_that_was_too_late_are_smaller_for_a_while(setup, monkeypatch):
    monkeypatch.setattr("redrive.kafka.room.TRANSACTION_WRITES", 2)
    producer = setup.producer()
    real, ahead = producer.outlet.producer, [0.0]

    def too_slow(*_: Any) -> None:
        ahead[0] += 50
        raise KafkaException(KafkaError(privates.TIMED_OUT))

    monkeypatch.setattr(transactional_producer, "monotonic", lambda: monotonic() + ahead[0])
    producer.outlet.producer = Failing(real, "commit_transaction", too_slow)
    with pytest.raises(TransactionError):
        setup.commit(producer, 0)
    assert (producer.room.writes, producer.room.bytes) == (1, 8_000_000)
    producer.outlet.producer = real
    setup.commit(producer, 0)
    assert (producer.room.writes, producer.room.bytes) == (2, 16_000_000)


class Failing:
    """A producer that fails at, or right after, one of its calls."""

    def __init__(self, real: Any, method: str, fails: Callable[..., None]) -> None:
        self._real = real
        self._method = method
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return partial(self._fails, real) if name == self._method else real


class Killed(Failing):
    """As a kill does it: nobody takes anything back, until the next owner comes."""

    def abort_transaction(self, _seconds: float) -> None: ...


def before(_real: Callable[..., Any], *_arguments: Any) -> None:
    raise KeyboardInterrupt("killed")


def after(real: Callable[..., Any], *arguments: Any) -> None:
    real(*arguments)
    raise KeyboardInterrupt("killed")


@pytest.mark.parametrize("when", [before, after])
@pytest.mark.parametrize(
    "method",
    ["begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction"],
)
def test_killed_anywhere_it_is_all_or_nothing(setup, method, when):
    setup.commit(setup.producer(), 0)
    killed = setup.producer()
    killed.outlet.producer = Killed(killed.outlet.producer, method, when)
    with pytest.raises(KeyboardInterrupt):
        setup.commit(killed, 1)
    setup.producer()
    committed = (method, when) == ("commit_transaction", after)
    assert setup.values() == [b"0", b"1"][: 2 if committed else 1]
    assert setup.committed() == (Position(2, "m1") if committed else Position(1, "m0"))


def test_an_error_takes_it_back_at_once(setup):
    """So that readers need not wait for the next owner."""
    failing = setup.producer()
    failing.outlet.producer = Failing(failing.outlet.producer, "commit_transaction", before)
    with pytest.raises(KeyboardInterrupt):
        setup.commit(failing, 0)
    assert setup.values() == []  # waits for its end, which no other owner brings about
    with pytest.raises(KafkaException):
        failing.outlet.producer.abort_transaction(5.0)  # nothing is open any more


def test_nobody_there_is_a_trouble_and_not_a_fence(nowhere, monkeypatch):
    monkeypatch.setattr(transactional_producer, "TRANSACTION_CALL_SECONDS", 1.0)
    with pytest.raises(TransactionError, match="cannot begin to use a transaction"):
        TransactionalProducer(nowhere, "app", TopicPartition("in", 0))
