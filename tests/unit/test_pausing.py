"""Partitions that are paused are read on without a delay: sleeping brokers are woken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from redrive.engines.worker.pausing import Pausing
from redrive.record import TopicPartition

LEADERS = {"a": {0: 1, 1: 1, 2: 2}, "b": {0: 2}}


class FakeConsumer:
    """Notes what it is asked; brokers lead as said above."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.silent = False

    def list_topics(self, topic: str, timeout: float) -> Any:
        self._answer(timeout)
        partitions = {number: SimpleNamespace(leader=led) for number, led in LEADERS[topic].items()}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def get_watermark_offsets(self, partition: Any, timeout: float, *, cached: bool) -> None:
        assert not cached  # else it asks nobody
        self._answer(timeout)
        self.said.append(f"wake {LEADERS[partition.topic][partition.partition]}")

    def pause(self, partitions: list[Any]) -> None:
        self.said += [f"pause {each.topic}{each.partition}" for each in partitions]

    def resume(self, partitions: list[Any]) -> None:
        self.said += [f"resume {each.topic}{each.partition}" for each in partitions]

    def _answer(self, timeout: float) -> None:
        assert timeout > 0
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


def partitions(*names: str) -> list[Any]:
    return [
        SimpleNamespace(place=TopicPartition(name[0], int(name[1])), paused=False) for name in names
    ]


def test_a_broker_of_whom_nothing_was_read_is_woken_once(consumer):
    a0, a1 = partitions("a0", "a1")
    pausing = Pausing(consumer)
    pausing.pause([a0, a1])
    assert a0.paused
    assert a1.paused
    pausing.resume([a0, a1], [a0, a1])
    assert not a0.paused
    assert not a1.paused
    assert consumer.said == ["pause a0", "pause a1", "resume a0", "resume a1", "wake 1"]


def test_a_broker_of_whom_something_is_read_is_awake(consumer):
    a0, a1, a2, b0 = partitions("a0", "a1", "a2", "b0")
    pausing = Pausing(consumer)
    pausing.pause([a0, a2, b0])
    pausing.resume([a0, a2], [a0, a1, a2, b0])
    assert consumer.said[3:] == ["resume a0", "resume a2", "wake 2"]


def test_brokers_that_do_not_answer_hold_up_nobody(consumer):
    (a0,) = partitions("a0")
    pausing = Pausing(consumer)
    pausing.pause([a0])
    consumer.silent = True
    pausing.resume([a0], [a0])
    assert not a0.paused
    assert consumer.said == ["pause a0", "resume a0"]


def test_nothing_to_pause_and_to_resume_is_nothing_to_ask_for(consumer):
    pausing = Pausing(consumer)
    pausing.pause([])
    pausing.resume([], [])
    assert consumer.said == []
