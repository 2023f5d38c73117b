"""Which of an app's permissions this user has, as brokers report it or show by refusing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from confluent_kafka import KafkaException, Producer

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.config import make_handle, transactional_config
from redrive.kafka.errors import is_not_allowed
from redrive.kafka.progress import KafkaProgress
from redrive.permissions import Granted, Permission
from redrive.tuning import PERMISSION_SECONDS

_UNMADE: Final = "check"
"""Not a delay, so that no delay topic can have this name."""


def granted(needed: Collection[Permission], settings: Settings, admin: Admin) -> Granted:
    """What is allowed on each resource; topics that do not exist are left out.

    For a prefix, it is what is allowed on every topic whose name begins with it.
    """
    found = _on_topics(needed, admin)
    for one in needed:
        if one.resource == "group":
            found["group", one.name] = _on_group(settings, one.name, admin)
        elif one.resource == "transactional-id":
            found["transactional-id", one.name] = _on_ids(settings, one.name)
    return found


def _on_topics(needed: Collection[Permission], admin: Admin) -> Granted:
    topics = {one.name: one.prefixed for one in needed if one.resource == "topic"}
    prefixes = tuple(name for name, prefixed in topics.items() if prefixed)
    seen = [name for name in admin.names() if name.startswith(prefixes)] if prefixes else []
    # A topic that does not exist shows whether the prefix is allowed, or only single topics.
    unmade = {f"{prefix}{_UNMADE}": prefix for prefix in prefixes}
    single = {name for name, prefixed in topics.items() if not prefixed}
    allowed = admin.allowed({*single, *seen, *unmade})
    found: Granted = {
        ("topic", name): operations for name, operations in allowed.items() if name not in unmade
    }
    for prefix in prefixes:
        each = [operations for name, operations in allowed.items() if name.startswith(prefix)]
        if each:
            told = [operations for operations in each if operations is not None]
            found["topic", prefix] = frozenset.intersection(*told) if told else None
    return found


def _on_group(settings: Settings, group: str, admin: Admin) -> frozenset[str] | None:
    """Nothing, or unknown: asked to describe a group, librdkafka may abort the whole process."""
    progress = KafkaProgress(settings, group, admin=admin, stable=False)
    try:
        return None if progress.may_be_asked() else frozenset()
    finally:
        progress.close()


def _on_ids(settings: Settings, prefix: str) -> frozenset[str] | None:
    """Found out by using an id that no partition has: brokers report nothing about these ids."""
    producer = make_handle(Producer, transactional_config(settings, f"{prefix}check"))
    try:
        producer.init_transactions(PERMISSION_SECONDS)
    except KafkaException as raised:
        return frozenset() if is_not_allowed(raised.args[0].name()) else None
    return frozenset({"WRITE", "DESCRIBE"})
