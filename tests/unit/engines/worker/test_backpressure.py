"""Partitions that are paused are read on without a delay: sleeping brokers are woken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import privates
import pytest
from confluent_kafka import KafkaError, KafkaException

from redrive.engines.worker import backpressure
from redrive.engines.worker.backpressure import Backpressure
from redrive.record import TopicPartition

LEADERS = {"a": {0: 1, 1: 1, 2: 2}, "b": {0: 2}}


class FakeConsumer:
    """Notes what it is asked; brokers lead as said above."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.silent = False
        self.silent_broker: int | None = None
        self.in_vain = 0
        """How often nobody has answered: each time the poll thread was blocked."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        self._answer(timeout)
        partitions = {number: SimpleNamespace(leader=led) for number, led in LEADERS[topic].items()}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def get_watermark_offsets(self, partition: Any, timeout: float, *, cached: bool) -> None:
        assert not cached  # else it asks nobody
        leader = LEADERS[partition.topic][partition.partition]
        self._answer(timeout, leader)
        self.said.append(f"wake {leader}")

    def pause(self, partitions: list[Any]) -> None:
        self.said += [f"pause {each.topic}{each.partition}" for each in partitions]

    def resume(self, partitions: list[Any]) -> None:
        self.said += [f"resume {each.topic}{each.partition}" for each in partitions]

    def _answer(self, timeout: float, broker: int = 0) -> None:
        assert timeout > 0
        if self.silent or broker == self.silent_broker:
            self.in_vain += 1
            raise KafkaException(KafkaError(privates.TIMED_OUT))


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


def partitions(*names: str) -> list[Any]:
    return [
        SimpleNamespace(place=TopicPartition(name[0], int(name[1])), paused=False) for name in names
    ]


def test_a_broker_of_whom_nothing_was_read_is_woken_once(consumer):
    a0, a1 = partitions("a0", "a1")
    paused = Backpressure(consumer)
    paused.pause([a0, a1])
    assert a0.paused
    assert a1.paused
    paused.resume([a0, a1], [a0, a1])
    assert not a0.paused
    assert not a1.paused
    assert consumer.said == ["pause a0", "pause a1", "resume a0", "resume a1", "wake 1"]


def test_a_broker_of_whom_something_is_read_is_awake(consumer):
    a0, a1, a2, b0 = partitions("a0", "a1", "a2", "b0")
    paused = Backpressure(consumer)
    paused.pause([a0, a2, b0])
    paused.resume([a0, a2], [a0, a1, a2, b0])
    assert consumer.said[3:] == ["resume a0", "resume a2", "wake 2"]


def test_brokers_that_do_not_answer_hold_up_nobody(consumer):
    (a0,) = partitions("a0")
    paused = Backpressure(consumer)
    paused.pause([a0])
    consumer.silent = True
    paused.resume([a0], [a0])
    assert not a0.paused
    assert consumer.said == ["pause a0", "resume a0"]


def test_brokers_that_do_not_answer_are_asked_once_for_all_partitions(consumer, monkeypatch):
    seconds = 1000.0
    monkeypatch.setattr(backpressure, "monotonic", lambda: seconds)
    all_of_them = partitions("a0", "a1", "a2", "b0")
    b0 = all_of_them[-1]
    paused = Backpressure(consumer)
    consumer.silent = True
    for _ in range(3):
        paused.pause([b0])
        paused.resume([b0], all_of_them)
    assert consumer.in_vain == 1
    consumer.silent = False
    seconds += 60
    paused.pause(all_of_them)
    paused.resume([b0], all_of_them)
    assert consumer.said[-1] == "wake 2"


def test_one_broker_that_does_not_answer_is_left_out_and_the_others_are_woken(consumer):
    a0, a2 = partitions("a0", "a2")
    paused = Backpressure(consumer)
    consumer.silent_broker = 1
    for _ in range(3):
        paused.pause([a0, a2])
        paused.resume([a0, a2], [a0, a2])
    assert consumer.in_vain == 1
    assert consumer.said.count("wake 2") == 3


def test_nothing_to_pause_and_to_resume_is_nothing_to_ask_for(consumer):
    paused = Backpressure(consumer)
    paused.pause([])
    paused.resume([], [])
    assert consumer.said == []
