"""KafkaPublisher: hands messages over, and knows of each whether it is durable or refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from confluent_kafka import Producer

from redrive.config import Settings
from redrive.errors import PublishError
from redrive.kafka import warm_up
from redrive.kafka.admin import Admin
from redrive.kafka.config import make_handle, producer_config
from redrive.kafka.errors import NotAllowedError, first_not_allowed, may_be_for_another
from redrive.kafka.handover import (
    KafkaHandover,
    Outlet,
    Refused,
    first_refused,
)
from redrive.kafka.writable import refusing
from redrive.record import Write
from redrive.tuning import PUBLISH_POLL, TOPIC_ASK_PATIENCE

log: Final = logging.getLogger("redrive.publishing")
"""Not librdkafka's logger, of which only the worst is shown."""


class KafkaPublisher:
    """Writes with an idempotent producer, created when first needed. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._config = producer_config(settings)
        self._admin = Admin(settings, patience=TOPIC_ASK_PATIENCE)
        self._outlets: dict[bool, Outlet] = {}
        """The producers, by whether their messages go alone."""
        self._lock = threading.Lock()
        self._not_allowed: NotAllowedError | None = None

    @property
    def not_allowed(self) -> NotAllowedError | None:
        """The missing permission that a write ran into, if any: it ends the run."""
        with self._lock:
            found = [self._not_allowed, *(each.not_allowed for each in self._outlets.values())]
        return next((each for each in found if each is not None), None)

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> KafkaHandover:
        """Begin to write all of them; the results are known after some polls."""
        return self._outlet(writes, alone=alone).hand_over(writes)

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them; PublishError names the first that was refused."""
        refused = self._deliver(writes, alone=False)
        in_company = [one for one in refused if may_be_for_another(one.error.name())]
        if len(in_company) > 1:
            # Brokers refuse a whole batch for its size, or for one message of it: those that were
            # only in bad company are written by themselves, after the rest.
            others = [one for one in refused if not may_be_for_another(one.error.name())]
            again = [one.write for one in in_company]
            refused = [*others, *self._deliver(again, alone=True)]
        if refused:
            error = first_refused(refused, writes)
            self._note(error.reasons)
            raise error

    def refusing(self, topics: Collection[str]) -> dict[str, PublishError]:
        """Which of these topics accept nothing at all now, and why: checked without writing."""
        found = refusing(self._admin, topics)
        self._note(found.values())
        with self._lock:
            outlets = list(self._outlets.values())
        for topic in set(topics) - found.keys():
            for outlet in outlets:
                warm_up.meet(
                    outlet.producer, topic
                )  # otherwise it trusts its old metadata for a long time
        return found

    def _note(self, reasons: Iterable[PublishError]) -> None:
        self._not_allowed = self._not_allowed or first_not_allowed(reasons)

    def close(self) -> None:
        """Close the producers."""
        with self._lock:
            self._outlets.clear()

    def _deliver(self, writes: Sequence[Write], *, alone: bool) -> list[Refused]:
        handed = self._outlet(writes, alone=alone).hand_over(writes)
        # Every message ends, delivered or refused, within librdkafka's message.timeout.ms.
        while handed.outstanding:
            handed.poll(PUBLISH_POLL)
        return handed.refused

    def _outlet(self, writes: Sequence[Write], *, alone: bool) -> Outlet:
        with self._lock:
            outlet = self._outlets.get(alone)
            if outlet is not None and (error := outlet.ended_by) is not None:
                log.error(
                    "a producer failed fatally (%s: %s): a new one is created, and its unwritten"
                    " messages are tried again",
                    error.name(),
                    error.str(),
                )
                self._not_allowed = self._not_allowed or outlet.not_allowed
                outlet = None
            if outlet is None:
                outlet = self._outlets[alone] = self._make(writes, alone=alone)
            return outlet

    def _make(self, writes: Sequence[Write], *, alone: bool) -> Outlet:
        config = {**self._config, "batch.num.messages": 1} if alone else self._config
        producer = make_handle(Producer, config)
        if writes:
            warm_up.meet(producer, writes[0].topic)
        return Outlet(producer)
