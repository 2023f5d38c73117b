"""Kafka transactions: messages and progress, all or nothing, and for one owner at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException
from running import wait_for_markers

from redrive.errors import PublishError
from redrive.kafka import transactions
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.transactions import FencedError, TransactionalProducer, TransactionError
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
    setup.commit(setup.producer(), 0)
    refused = Write(topic.format(setup.out.topic), None, value, (), partition)
    with pytest.raises(PublishError, match="was refused") as caught:
        setup.commit(setup.producer(), 1, refused)
    assert caught.value.refused == [refused]
    assert setup.values() == [b"0"]
    assert setup.committed() == Position(1, "m0")
    setup.commit(setup.producer(), 1)
    assert setup.values() == [b"0", b"1"]


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
    with pytest.raises(FencedError):
        setup.commit(first, 8)
    setup.commit(second, 1)
    assert setup.values() == [b"0", b"1"]
    assert setup.committed() == Position(2, "m1")


class Failing:
    """A producer that fails at, or right after, one of its calls."""

    def __init__(self, real: Any, method: str, when: str) -> None:
        self._real = real
        self._method = method
        self._when = when

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return self._failing(real) if name == self._method else real

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> None:
            if self._when == "after":
                real(*arguments)
            raise KeyboardInterrupt("killed")

        return call


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "method",
    ["begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction"],
)
def test_killed_anywhere_it_is_all_or_nothing(setup, monkeypatch, method, when):
    setup.commit(setup.producer(), 0)
    killed = setup.producer()
    killed._outlet.producer = Failing(killed._outlet.producer, method, when)
    # As a kill does it: nobody takes anything back, until the next owner comes.
    monkeypatch.setattr(killed, "_abort", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        setup.commit(killed, 1)
    setup.producer()
    committed = (method, when) == ("commit_transaction", "after")
    assert setup.values() == [b"0", b"1"][: 2 if committed else 1]
    assert setup.committed() == (Position(2, "m1") if committed else Position(1, "m0"))


def test_an_error_takes_it_back_at_once(setup):
    """So that readers need not wait for the next owner."""
    failing = setup.producer()
    failing._outlet.producer = Failing(failing._outlet.producer, "commit_transaction", "before")
    with pytest.raises(KeyboardInterrupt):
        setup.commit(failing, 0)
    assert setup.values() == []  # waits for its end, which no other owner brings about
    with pytest.raises(KafkaException):
        failing._outlet.producer.abort_transaction(5.0)  # nothing is open any more


def test_nobody_there_is_a_trouble_and_not_a_fence(nowhere, monkeypatch):
    monkeypatch.setattr(transactions, "TIMEOUT", 1.0)
    with pytest.raises(TransactionError, match="cannot begin to use a transaction"):
        TransactionalProducer(nowhere, "app", TopicPartition("in", 0))
