"""What a topic accepts, checked before anything is written to it.

A broker that refuses one message has often accepted the next one of the same key already: then the
order is lost. So whatever can be known in advance is not left to the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from redrive.config import Settings
from redrive.errors import PublishError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import MissingTopicError, NotAllowedError, publish_error
from redrive.kafka.rdkafka import TopicDescription
from redrive.kafka.topic_admin import topic_settings
from redrive.ledger.held_back import Taken
from redrive.record import Write
from redrive.tuning import RELAY_ADMISSION_PATIENCE

DEFAULT_LIMIT: Final = 1_048_588
"""Kafka's default limit, if the topic's cannot be read."""

_FRAME: Final = 100
_PER_HEADER: Final = 10


class Takes(NamedTuple):
    """What one topic accepts."""

    partitions: int
    limit: int
    compacted: bool


class Admission:
    """Which writes their topics would refuse, as far as that can be known."""

    def __init__(self, settings: Settings) -> None:
        self._admin = Admin(settings, patience=RELAY_ADMISSION_PATIENCE)
        self._compresses = any(name.startswith("compression.") for name in settings.librdkafka)
        self._known: dict[str, Takes] = {}

    @property
    def smallest_limit(self) -> int:
        """The size that every topic seen so far accepts."""
        return min((takes.limit for takes in self._known.values()), default=DEFAULT_LIMIT)

    def learn(self, topic: str) -> str | None:
        """Look up a topic unless it is known; returns why nothing can be written to it, if so.

        BrokerError if nobody answers.
        """
        if topic in self._known:
            return None
        try:
            found = self._admin.topic(topic)
        except MissingTopicError:
            return str(publish_error(topic, None, "UNKNOWN_TOPIC_OR_PART"))
        except NotAllowedError:
            return str(publish_error(topic, None, "TOPIC_AUTHORIZATION_FAILED"))
        settings = self._settings(topic)
        reason = out_of_reach(found, int(settings.get("min.insync.replicas", 1)))
        if reason is not None:
            return f"{topic}: {reason}"
        self._known[topic] = Takes(
            len(found.partitions),
            int(settings.get("max.message.bytes", DEFAULT_LIMIT)),
            "compact" in settings.get("cleanup.policy", ""),
        )
        return None

    def ask_broker(self) -> None:
        """BrokerError unless somebody answers."""
        self._admin.names()

    def forget(self, topic: str) -> None:
        """Something was refused there: what was known may no longer hold."""
        self._known.pop(topic, None)

    def doubtful(self, taken: Sequence[Taken]) -> list[Taken]:
        """Those that are worth a closer look: usually few."""
        much = self.smallest_limit // 3
        return [
            one
            for one in taken
            if (write := one.write).key is None
            or write.partition is not None
            or len(write.headers) > 1
            or len(write.key) + len(write.value or b"") > much
        ]

    def refusal(self, write: Write) -> PublishError | None:
        """Why the topic would refuse it, if so; the topic must have been looked up."""
        takes = self._known[write.topic]
        if write.partition is not None and write.partition >= takes.partitions:
            return publish_error(write.topic, write.partition, "_UNKNOWN_PARTITION")
        if takes.compacted and write.key is None:
            return publish_error(write.topic, None, "INVALID_RECORD")
        # It may be small enough once compressed: the broker decides.
        if not self._compresses and _size(write) > takes.limit:
            return publish_error(write.topic, None, "MSG_SIZE_TOO_LARGE")
        return None

    def _settings(self, topic: str) -> dict[str, str]:
        try:
            return topic_settings(self._admin, topic)
        except NotAllowedError:
            return {}  # reading settings is a separate permission, and not needed to write


def out_of_reach(topic: TopicDescription, least_in_sync: int) -> str | None:
    """Why a message to one of the topic's partitions could not be acknowledged now, if so."""
    for partition in topic.partitions:
        if partition.leader is None or partition.leader.id < 0:
            return f"partition {partition.id} has no leader; is a broker down?"
        if len(partition.isr) < min(least_in_sync, len(partition.replicas)):
            return (
                f"partition {partition.id} has {len(partition.isr)} replicas in sync, and"
                f" min.insync.replicas is {least_in_sync}; is a broker down?"
            )
    return None


def _size(write: Write) -> int:
    """An upper bound for the size of a batch with only this message."""
    headers = sum(
        len(name.encode()) + len(value or b"") + _PER_HEADER for name, value in write.headers
    )
    return len(write.key or b"") + len(write.value or b"") + headers + _FRAME
