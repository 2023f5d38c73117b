"""Finds out which permission is missing when Kafka refuses without saying so."""

from __future__ import annotations

from collections.abc import Collection

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.errors import BrokerError, NotAllowedError, not_allowed
from redrive.permissions import Permission, lacking
from redrive.tuning import MISSING_PATIENCE


def missing_on_topics(
    settings: Settings, what: str, reason: str, *, written: Collection[str], read: Collection[str]
) -> NotAllowedError | None:
    """What is not allowed on these topics; None: everything is by now, or it is unknown."""
    try:
        allowed = Admin(settings, patience=MISSING_PATIENCE).allowed({*written, *read})
    except BrokerError:
        return None
    needed = [
        *(Permission("outbound topics", "topic", name, ("WRITE",)) for name in written),
        *(Permission("source topics", "topic", name, ("READ",)) for name in read),
    ]
    refused = lacking(needed, {("topic", name): each for name, each in allowed.items()})
    return not_allowed(what, reason, ", ".join(map(str, refused))) if refused else None
