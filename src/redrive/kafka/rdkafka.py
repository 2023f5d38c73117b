"""Names of confluent_kafka that it documents in one module and declares in another.

Type checkers refuse them where they are documented; so they are imported once, here.
"""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # -- see above
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupListing,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    TopicDescription,
    UserScramCredentialUpsertion,
)

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AlterConfigOpType",
    "ConfigEntry",
    "ConfigResource",
    "ConsumerGroupListing",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "ResourcePatternType",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "TopicDescription",
    "UserScramCredentialUpsertion",
]
