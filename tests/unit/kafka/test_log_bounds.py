"""Where partitions begin and end, while a broker restarts."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID

from redrive.config import load_settings
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.record import TopicPartition

PLACE = TopicPartition("in", 0)


class Restarting:
    """An admin client of librdkafka, which was seen to answer so: without an offset at first."""

    def __init__(self, times: int) -> None:
        self.times = times

    def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.times -= 1
        answers: dict[Any, Future[Any]] = {place: Future() for place in asked}
        for future in answers.values():
            offset = OFFSET_INVALID if self.times >= 0 else 7
            future.set_result(SimpleNamespace(offset=offset, timestamp=70))
        return answers

    def poll(self, _: float) -> None: ...

    def list_topics(self, **_: Any) -> None: ...


@pytest.fixture
def log(monkeypatch) -> KafkaLog:
    settings = load_settings({"bootstrap": "localhost:1"}, environ={})
    admin = Admin(settings)
    monkeypatch.setattr(Admin, "client", Restarting(3))
    return KafkaLog(settings, "group", admin=admin)


def test_an_answer_without_an_offset_is_no_end_of_a_log(log):
    assert log.all_bounds([PLACE]) == {PLACE: (7, 7)}


def test_nor_does_it_say_that_nothing_came_since(log):
    assert log.appended_since({PLACE: 60}) == {PLACE: (7, 70)}


def test_nor_that_nothing_is_open(log):
    assert log.undecided([PLACE]) == set()
