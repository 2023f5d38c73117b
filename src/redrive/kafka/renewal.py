"""Renewal: restarts the clock by which the offsets of a group that had members expire.

Brokers keep each offset of a group that never had members for some time after its commit
(`offsets.retention.minutes`). But those of a group that had members all expire at once, that long
after the last member left, however recent they are: seen on Kafka 4.0, with a group whose offsets
were committed every ten seconds. A member that joins and leaves restarts the clock.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer

from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.config import consumer_config, make_handle
from redrive.kafka.errors import BrokerError
from redrive.tuning import RENEWAL_SECONDS


def renew(settings: Settings, group: str, topic: str) -> None:
    """Join a group that had members, and leave it; nothing is read or committed."""
    admin = Admin(settings)
    if not admin.had_members(group):
        return
    consumer = make_handle(
        Consumer, {**consumer_config(settings, group), "session.timeout.ms": 6000}
    )
    end = time.monotonic() + RENEWAL_SECONDS
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
            if time.monotonic() >= end:
                raise BrokerError(
                    f"group {group} could not be joined within {RENEWAL_SECONDS:.0f} s"
                )
    finally:
        consumer.close()
    admin.wait_until(f"leaving group {group}", lambda: not admin.has_members(group))
