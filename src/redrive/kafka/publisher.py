"""KafkaPublisher: messages handed over, and known to be durable or refused, one by one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from confluent_kafka import KafkaError, Producer

from redrive.config import Settings
from redrive.errors import PublishError
from redrive.kafka import meeting
from redrive.kafka.admin import Admin
from redrive.kafka.config import make_handle, producer_config
from redrive.kafka.errors import NotAllowedError, first_not_allowed
from redrive.kafka.handover import (
    KafkaHandover,
    Outlet,
    Refused,
    first_refused,
)
from redrive.kafka.writable import refusing
from redrive.record import Write

log: Final = logging.getLogger("redrive.publishing")
"""Not librdkafka's, of which only the worst is shown."""

_POLL_SECONDS: Final = 0.1
_PATIENCE: Final = 2.0


class KafkaPublisher:
    """Writes by an idempotent producer, made when it is first needed. Safe for many threads."""

    def __init__(self, settings: Settings) -> None:
        self._config = producer_config(settings)
        self._admin = Admin(settings, patience=_PATIENCE)
        self._outlets: dict[bool, Outlet] = {}
        """Whether messages go alone, and by which producer."""
        self._lock = threading.Lock()
        self._not_allowed: NotAllowedError | None = None

    @property
    def not_allowed(self) -> NotAllowedError | None:
        """Why this user may not write something, once that was tried: a run ends with it."""
        with self._lock:
            found = [self._not_allowed, *(each.not_allowed for each in self._outlets.values())]
        return next((each for each in found if each is not None), None)

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> KafkaHandover:
        """Begin to write all of them; what came of it is known after some polls."""
        return self._outlet(writes, alone=alone).hand_over(writes)

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them; PublishError names the first that was refused."""
        refused = self._deliver(writes, alone=False)
        neighbours = [
            one.write for one in refused if one.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        ]
        if len(neighbours) > 1:
            # Brokers refuse a whole batch for its size, small messages with large ones: those that
            # were only in bad company are written by themselves, after the rest.
            others = [one for one in refused if one.error.code() != KafkaError.MSG_SIZE_TOO_LARGE]
            refused = [*others, *self._deliver(neighbours, alone=True)]
        if refused:
            error = first_refused(refused, writes)
            self._note(error.reasons)
            raise error

    def refusing(self, topics: Collection[str]) -> dict[str, PublishError]:
        """Which of these topics take nothing at all now, and why: asked without writing."""
        found = refusing(self._admin, topics)
        self._note(found.values())
        with self._lock:
            outlets = list(self._outlets.values())
        for topic in set(topics) - found.keys():
            for outlet in outlets:
                meeting.meet(outlet.producer, topic)  # else it believes for long what it saw last
        return found

    def _note(self, reasons: Iterable[PublishError]) -> None:
        self._not_allowed = self._not_allowed or first_not_allowed(reasons)

    def close(self) -> None:
        """Let go of the producers."""
        with self._lock:
            self._outlets.clear()

    def _deliver(self, writes: Sequence[Write], *, alone: bool) -> list[Refused]:
        handed = self._outlet(writes, alone=alone).hand_over(writes)
        # Every message ends, delivered or refused, within librdkafka's message.timeout.ms.
        while handed.outstanding:
            handed.poll(_POLL_SECONDS)
        return handed.refused

    def _outlet(self, writes: Sequence[Write], *, alone: bool) -> Outlet:
        with self._lock:
            outlet = self._outlets.get(alone)
            if outlet is not None and (error := outlet.ended_by) is not None:
                log.error(
                    "a producer was ended by a fatal error (%s: %s): a new one is made, and what"
                    " it had not written is tried again",
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
            meeting.meet(producer, writes[0].topic)
        return Outlet(producer)
