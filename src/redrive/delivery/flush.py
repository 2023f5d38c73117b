"""FlushDelivery: write, wait until it is durable, and only then count the record as complete."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from redrive.errors import PublishError
from redrive.processing.outcomes import Outcome, Report
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.ports import Clock, Publisher
    from redrive.processing.processor import PartitionProcessor

Noted = tuple["PartitionProcessor", Outcome]

log: Final = logging.getLogger("redrive.delivery")

REFUSED_WAIT: Final = 1000
REFUSED_LONGEST: Final = 30_000
"""Milliseconds until refused writes are tried again: doubled each time, up to the second."""


class FlushDelivery:
    """At least once: everything is durable before its offset is complete.

    `take` only takes note; `pump` writes, in one thread, all that has come in between.
    """

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock
        self._noted: deque[tuple[PartitionProcessor, Report]] = deque()
        self._refused: list[Noted] = []
        self._wait = REFUSED_WAIT
        self._again = 0

    def take(self, processor: PartitionProcessor, report: Report) -> None:
        """Take note of outcomes."""
        self._noted.append((processor, report))

    @property
    def refused(self) -> int:
        """How many outcomes could not be written, and wait to be tried again."""
        return len(self._refused)

    def pump(self) -> list[Noted]:
        """Make durable what was noted; gives the outcomes that are complete by it."""
        outcomes: list[Noted] = []
        while self._noted:
            processor, report = self._noted.popleft()
            processor.settle(report.done)
            outcomes += [(processor, outcome) for outcome in report.outcomes]
        if self._refused and self._clock.now() >= self._again:
            outcomes = self._refused + outcomes
            self._refused = []
        return self._write(outcomes) if outcomes else []

    def next_due(self) -> int | None:
        """When refused writes will be tried again."""
        return self._again if self._refused else None

    def _write(self, outcomes: list[Noted]) -> list[Noted]:
        refused: set[int] = set()
        writes = [write for _, outcome in outcomes for write in outcome.writes]
        try:
            if writes:
                self._publisher.publish(writes)
            self._wait = REFUSED_WAIT
        except PublishError as error:
            refused = self._note_refusal(error, writes)
        complete: list[Noted] = []
        offsets: dict[PartitionProcessor, list[int]] = {}
        for processor, outcome in outcomes:
            if refused and any(id(write) in refused for write in outcome.writes):
                self._refused.append((processor, outcome))
            else:
                offsets.setdefault(processor, []).append(outcome.offset)
                complete.append((processor, outcome))
        for processor, done in offsets.items():
            processor.settle(done)
        return complete

    def _note_refusal(self, error: PublishError, writes: list[Write]) -> set[int]:
        """Which writes were refused; all of them where that is not known."""
        self._again = self._clock.now() + self._wait
        log.error(
            "%s; its record stays where it is, and it is tried again in %d ms", error, self._wait
        )
        self._wait = min(2 * self._wait, REFUSED_LONGEST)
        return set(map(id, error.refused or writes))
