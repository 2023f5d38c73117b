"""Names of confluent_kafka that it documents in one module and declares in another.

Type checkers refuse them where they are documented; so they are imported once, here.
"""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # -- see above
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

__all__ = [
    "AclOperation",
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "ResourceType",
    "TopicDescription",
]
