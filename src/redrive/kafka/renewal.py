"""Renewal: when a group that had members forgets its offsets is counted from now on.

Brokers keep the offsets of a group that never had members each for some time after its commit
(`offsets.retention.minutes`). But those of a group that had members are all forgotten at once, that
long after the last member left, however recent they are: seen on Kafka 4.0, with a group whose
offsets were committed every ten seconds. Somebody who joins and leaves has it counted anew.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.config import consumer_config, make_handle
from redrive.kafka.errors import BrokerError

_SECONDS: Final = 30.0
"""By default brokers wait three seconds for more members before they let the first one in."""


def renew(settings: Settings, group: str, topic: str) -> None:
    """Join a group that had members, and leave it; nothing is read or committed."""
    admin = Admin(settings)
    if not admin.had_members(group):
        return
    consumer = make_handle(
        Consumer, {**consumer_config(settings, group), "session.timeout.ms": 6000}
    )
    end = time.monotonic() + _SECONDS
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
            if time.monotonic() >= end:
                raise BrokerError(f"group {group} could not be joined within {_SECONDS:.0f} s")
    finally:
        consumer.close()
    admin.wait_until(f"leaving group {group}", lambda: not admin.has_members(group))
