"""Which topics accept writes at all: asks the brokers, without writing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from redrive.errors import PublishError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import publish_error
from redrive.kafka.rdkafka import TopicDescription

_ANSWERS: Final = ("UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION")


def refusing(admin: Admin, topics: Collection[str]) -> dict[str, PublishError]:
    """The topics that refuse all writes of this user, and why; BrokerError if nobody answers."""
    if not topics:
        return {}
    found = admin.ask(f"describe {', '.join(topics)}", lambda client: _reasons(client, topics))
    return {topic: publish_error(topic, None, reason) for topic, reason in found.items()}


def _reasons(client: AdminClient, topics: Collection[str]) -> dict[str, str]:
    asked = client.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True
    )
    found: dict[str, str] = {}
    for topic, answer in asked.items():
        try:
            reason = _reason(answer.result())
        except KafkaException as raised:
            reason = raised.args[0].name()
            if reason not in _ANSWERS:
                raise
        if reason:
            found[topic] = reason
    return found


def _reason(topic: TopicDescription) -> str:
    allowed = topic.authorized_operations
    if allowed is not None and "WRITE" not in {operation.name for operation in allowed}:
        return "TOPIC_AUTHORIZATION_FAILED"
    if any(partition.leader is None for partition in topic.partitions):
        return "LEADER_NOT_AVAILABLE"
    return ""
