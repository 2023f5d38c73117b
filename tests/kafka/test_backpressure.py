"""Partitions that are read on while no broker answers: the poll thread asks once, for all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import Consumer

from redrive.engines.worker.backpressure import Backpressure
from redrive.record import TopicPartition


class Counted(Consumer):
    """A real consumer that counts for how many answers it waits."""

    waited = 0

    def list_topics(self, *args: Any, **options: Any) -> Any:
        self.waited += 1
        return super().list_topics(*args, **options)

    def get_watermark_offsets(self, *args: Any, **options: Any) -> Any:
        self.waited += 1
        return super().get_watermark_offsets(*args, **options)


def test_nobody_is_asked_for_each_partition_while_nobody_answers(nowhere):
    consumer = Counted(
        {"bootstrap.servers": nowhere.bootstrap, "group.id": "group", "log_level": 0}
    )
    partitions: list[Any] = [
        SimpleNamespace(place=TopicPartition(topic, number), paused=True)
        for topic in ("orders", "refunds")
        for number in range(4)
    ]
    Backpressure(consumer).resume(partitions, partitions)
    assert not any(each.paused for each in partitions)
    assert consumer.waited == 1
    consumer.close()
