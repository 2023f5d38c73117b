"""Does at once what librdkafka puts off.

It looks up the leaders of a topic that is new to it about 600 ms later, and resumes a paused
partition about 900 ms later, if its thread for that broker has nothing else to do. A request gives
it something to do.
"""

from __future__ import annotations

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer

from redrive.tuning import MEET_PATIENCE, WAKE_PATIENCE


def meet(client: Consumer | Producer, topic: str) -> bool:
    """Have a client look up a topic's leaders; False: no answer, it will find out by itself."""
    try:
        client.list_topics(topic, timeout=MEET_PATIENCE)
    except KafkaException:
        return False
    return True


def leaders(client: Consumer, topic: str) -> dict[int, int] | None:
    """Which broker leads each partition of a topic; None: no answer."""
    try:
        found = client.list_topics(topic, timeout=WAKE_PATIENCE).topics
    except KafkaException:
        return None
    if topic not in found:
        return {}
    return {number: partition.leader for number, partition in found[topic].partitions.items()}


def wake(consumer: Consumer, partition: confluent_kafka.TopicPartition) -> bool:
    """Wake librdkafka's thread for the broker that leads a partition.

    False: the broker does not answer, and its thread wakes up by itself, later.
    """
    try:
        consumer.get_watermark_offsets(partition, timeout=WAKE_PATIENCE, cached=False)
    except KafkaException:
        return False
    return True
