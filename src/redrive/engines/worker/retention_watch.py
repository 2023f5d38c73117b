"""RetentionWatch: warns when what waits for the end of an outage is about to be deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from redrive.durations import text
from redrive.ports import Clock
from redrive.processing.outcomes.guard_log import GuardSeen
from redrive.tuning import GUARD_RETENTION, GUARD_RETENTION_EVERY

log: Final = logging.getLogger("redrive.worker")

_RETENTION: Final = "retention.ms"


class RetentionWatch:
    """Compares the oldest record that waits with its topic's retention, now and then."""

    def __init__(
        self,
        guards: Callable[[], Sequence[GuardSeen]],
        oldest: Callable[[str], int | None],
        settings: Callable[[Collection[str]], Mapping[str, Mapping[str, str]]],
        clock: Clock,
    ) -> None:
        """`oldest` returns the timestamp of the oldest record of a topic that waits here."""
        self._guards = guards
        self._oldest = oldest
        self._settings = settings
        self._clock = clock
        self._looked_at: int | None = None

    def look(self) -> None:
        """Look, if there is an outage and it is time."""
        topics = [each.topic for each in self._guards() if each.opened]
        now = self._clock.now()
        if not topics:
            self._looked_at = None
            return
        if self._looked_at is not None and now - self._looked_at < GUARD_RETENTION_EVERY:
            return
        self._looked_at = now
        settings = self._settings(topics)
        for topic in topics:
            self._compare(topic, int(settings.get(topic, {}).get(_RETENTION, -1)), now)

    def _compare(self, topic: str, kept: int, now: int) -> None:
        oldest = self._oldest(topic)
        if kept < 0 or oldest is None or now - oldest < GUARD_RETENTION * kept:
            return
        log.error(
            "%s: its guard is open, and the oldest record that waits is %s old; retention.ms"
            " deletes records after %s: raise it until the outage is over",
            topic,
            text((now - oldest) // 1000 * 1000),
            text(kept),
        )
