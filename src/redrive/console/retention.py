"""Retention: for how long the cluster keeps records and offsets, asked now and then."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Final

from redrive.errors import RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.topic_admin import KafkaTopics
from redrive.tuning import CONSOLE_BROKER_EVERY, CONSOLE_TOPICS_EVERY

log: Final = logging.getLogger("redrive.console")


@dataclass(frozen=True)
class Kept:
    """For how long things are kept, in milliseconds."""

    topics: Mapping[str, int | None] = field(default_factory=dict)
    """Records, by topic; None: for ever, or not known."""
    offsets: int | None = None
    """The progress of an app that nobody runs; None: not known."""


class Retention:
    """Asks the brokers; where they do not say, what was known before stands."""

    def __init__(self, admin: Admin, topics: KafkaTopics) -> None:
        self._admin = admin
        self._topics = topics
        self._topics_at = self._offsets_at = -inf
        self.kept = Kept()

    def look(self, names: Collection[str]) -> Kept:
        """Of these topics; as of a while ago, if that was asked before."""
        if monotonic() - self._topics_at >= CONSOLE_TOPICS_EVERY:
            self._topics_at = monotonic()
            self.kept = Kept(self._of_topics(names), self.kept.offsets)
        if monotonic() - self._offsets_at >= CONSOLE_BROKER_EVERY:
            self._offsets_at = monotonic()
            self.kept = Kept(self.kept.topics, self._of_offsets())
        return self.kept

    def _of_topics(self, names: Collection[str]) -> Mapping[str, int | None]:
        try:
            found = self._topics.visible_settings(names)
        except RedriveError as error:
            log.info("how long topics keep their records cannot be asked now: %s", error)
            return self.kept.topics
        return {name: _number(config.get("retention.ms")) for name, config in found.items()}

    def _of_offsets(self) -> int | None:
        try:
            found = _number(self._admin.broker_settings().get("offsets.retention.minutes"))
        except RedriveError as error:  # it takes a permission that no run needs
            log.info("how long brokers keep offsets cannot be asked: %s", error)
            return self.kept.offsets
        return None if found is None else found * 60_000


def _number(written: str | None) -> int | None:
    """What a setting says; None: for ever, or not known."""
    number = int(written) if written and written.lstrip("-").isdecimal() else -1
    return None if number < 0 else number
