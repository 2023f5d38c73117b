"""What librdkafka puts off, done at once.

It asks for the leaders of a topic that is new to it about 600 ms later, and takes up a partition
that was paused about 900 ms later, if its thread for that broker has nothing else to do. A request
is something to do.
"""

from __future__ import annotations

from typing import Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer

_PATIENCE: Final = 1.0
_WAKE_PATIENCE: Final = 0.2
"""Seconds. Who polls has little time to wait."""


def meet(client: Consumer | Producer, topic: str) -> bool:
    """Have a client ask for a topic's leaders; False: nobody answers, it will find out itself."""
    try:
        client.list_topics(topic, timeout=_PATIENCE)
    except KafkaException:
        return False
    return True


def leaders(client: Consumer, topic: str) -> dict[int, int]:
    """Which broker leads each partition of a topic; empty where nobody answers."""
    try:
        found = client.list_topics(topic, timeout=_PATIENCE).topics[topic].partitions
    except (KafkaException, KeyError):
        return {}
    return {number: partition.leader for number, partition in found.items()}


def wake(consumer: Consumer, partition: confluent_kafka.TopicPartition) -> None:
    """Wake librdkafka's thread for the broker that leads a partition."""
    try:
        consumer.get_watermark_offsets(partition, timeout=_WAKE_PATIENCE, cached=False)
    except KafkaException:
        pass  # then it wakes up by itself, later
