"""KafkaTopics: describes and changes topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.errors import MissingTopicError, is_not_allowed
from redrive.kafka.rdkafka import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)
from redrive.numbers import counted
from redrive.ports import TopicState

_AS_THE_BROKER_DOES: Final = -1


class KafkaTopics:
    """The topics of a cluster. When a change returns, the broker that answers has applied it."""

    def __init__(self, settings: Settings, *, admin: Admin | None = None) -> None:
        self._admin = admin or Admin(settings)

    def describe(self, names: Collection[str]) -> dict[str, TopicState]:
        """The topics that exist; missing ones are left out."""
        found = {name: topic for name in names if (topic := self._find(name)) is not None}
        configs = self.visible_settings(found)
        return {
            name: TopicState(
                partitions=len(topic.partitions),
                replication=min((len(one.replicas) for one in topic.partitions), default=0),
                config=configs.get(name, {}),
            )
            for name, topic in found.items()
        }

    def visible_settings(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """The settings of these topics, except those that this user may not read."""
        if not names:
            return {}
        return self._admin.ask(
            f"read the settings of {', '.join(names)}",
            lambda client: _settings_of(client, names, visible=True),
        )

    def create(
        self, name: str, partitions: int, config: Mapping[str, str], replication: int | None = None
    ) -> None:
        """Create one, and wait until it can be used."""
        copies = replication or _AS_THE_BROKER_DOES
        topic = NewTopic(name, partitions, copies, config=dict(config))
        self._admin.ask(
            f'create topic "{name}"',
            lambda client: client.create_topics([topic])[name].result(),
            needs=f"CREATE on topic {name}",
        )
        self._admin.wait_until(f'creating topic "{name}"', lambda: self._usable(name, partitions))

    def grow(self, name: str, partitions: int) -> None:
        """Raise the number of partitions."""
        more = NewPartitions(name, partitions)
        self._admin.ask(
            f'increase topic "{name}" to {counted(partitions, "partition")}',
            lambda client: client.create_partitions([more])[name].result(),
            needs=f"ALTER on topic {name}",
        )
        self._admin.wait_until(
            f'adding partitions to topic "{name}"', lambda: self._usable(name, partitions)
        )

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Change these settings, and leave the others as they are."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        self._admin.ask(
            f'configure topic "{name}"',
            lambda client: _alter(client, name, entries),
            needs=f"ALTER_CONFIGS on topic {name}",
        )
        self._admin.wait_until(
            f'changing the settings of topic "{name}"',
            lambda: config.items() <= topic_settings(self._admin, name).items(),
        )

    def delete(self, name: str) -> None:
        """Delete one, and wait until it is gone."""
        self._admin.ask(
            f'delete topic "{name}"', lambda client: client.delete_topics([name])[name].result()
        )
        self._admin.wait_until(f'deleting topic "{name}"', lambda: self._find(name) is None)

    def _find(self, name: str) -> TopicDescription | None:
        try:
            return self._admin.topic(name)
        except MissingTopicError:
            return None

    def _usable(self, name: str, partitions: int) -> bool:
        topic = self._find(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(one.leader is not None for one in topic.partitions)
        )


def topic_settings(admin: Admin, name: str) -> dict[str, str]:
    """The settings of one topic; empty if it is gone."""
    found = admin.ask(f"read the settings of {name}", lambda client: _settings_of(client, [name]))
    return found.get(name, {})


def _settings_of(
    client: AdminClient, names: Collection[str], *, visible: bool = False
) -> dict[str, dict[str, str]]:
    asked = client.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    settings: dict[str, dict[str, str]] = {}
    for resource, future in asked.items():
        try:
            entries = future.result()
        except KafkaException as raised:
            deleted = raised.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if not deleted and not (visible and is_not_allowed(raised.args[0].name())):
                raise
        else:
            settings[resource.name] = {
                key: entry.value for key, entry in entries.items() if entry.value is not None
            }
    return settings


def _alter(client: AdminClient, name: str, entries: list[ConfigEntry]) -> None:
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    client.incremental_alter_configs([resource])[resource].result()
