"""Consumers that read ranges: who leads a topic is asked for before the first range of it."""

from __future__ import annotations

from typing import Any

import privates
import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from redrive.config import load_settings
from redrive.kafka import log
from redrive.record import TopicPartition


class FakeConsumer:
    """Notes what it is asked."""

    def __init__(self, asked: list[str], *, refuses: bool) -> None:
        self._asked = asked
        self._refuses = refuses
        self._topic = ""

    def list_topics(self, topic: str, timeout: float) -> None:
        self._asked.append(f"who leads {topic}")
        if self._refuses:
            raise KafkaException(KafkaError(privates.TRANSPORT))

    def assign(self, partitions: list[Any]) -> None:
        self._topic = partitions[0].topic
        self._asked.append(f"read {self._topic}")

    def poll(self, _: float) -> Message:
        return Message(topic=self._topic, partition=0, offset=0, timestamp=(0, 0))

    def consume(self, _: int, __: float) -> list[Message]:
        return []

    def unassign(self) -> None: ...


@pytest.fixture
def asked() -> list[str]:
    """What consumers are asked; each range is one record long, and comes at once."""
    return []


def reading(monkeypatch: pytest.MonkeyPatch, asked: list[str], *, refuses: bool = False) -> Any:
    monkeypatch.setattr(log, "make_handle", lambda *_: FakeConsumer(asked, refuses=refuses))
    found = log.KafkaLog(load_settings({"bootstrap": "127.0.0.1:1"}), "app")
    return lambda topic: found.read(TopicPartition(topic, 0), 0, 1)


def test_who_leads_a_topic_is_asked_for_before_its_first_range_and_not_again(monkeypatch, asked):
    read = reading(monkeypatch, asked)
    for topic in ("a", "a", "b", "a"):
        assert len(read(topic)) == 1
    assert asked == ["who leads a", "read a", "read a", "who leads b", "read b", "read a"]


def test_a_range_is_read_by_who_knows_its_topic(monkeypatch, asked):
    log_of = log.KafkaLog(load_settings({"bootstrap": "127.0.0.1:1"}), "app")
    monkeypatch.setattr(log, "make_handle", lambda *_: FakeConsumer(asked, refuses=False))
    one, other = (log_of.batches(TopicPartition(topic, 0), 0, 1) for topic in "ab")
    next(one), next(other)  # two at a time: two consumers
    other.close(), one.close()
    assert log_of.read(TopicPartition("b", 0), 0, 1)
    assert log_of.read(TopicPartition("a", 0), 0, 1)
    assert asked == ["who leads a", "read a", "who leads b", "read b", "read b", "read a"]


def test_a_broker_that_does_not_answer_is_asked_again_next_time(monkeypatch, asked):
    read = reading(monkeypatch, asked, refuses=True)
    assert len(read("a")) == 1
    assert len(read("a")) == 1
    assert asked == ["who leads a", "read a"] * 2
