"""FlushDelivery: write, wait until it is durable, and only then count the record as complete."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.errors import PublishError
from redrive.processing.outcomes import Outcome, Report
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.ports import Clock, Publisher
    from redrive.processing.processor import PartitionProcessor


class Item(NamedTuple):
    """One record that is complete once its writes are durable."""

    processor: PartitionProcessor
    offset: int
    writes: Sequence[Write]
    outcome: Outcome | None
    """None: the record is done, and these are what its handler has sent."""


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
        self._refused: list[Item] = []
        self._wait = REFUSED_WAIT
        self._again = 0

    def take(self, processor: PartitionProcessor, report: Report) -> None:
        """Take note of outcomes."""
        self._noted.append((processor, report))

    @property
    def refused(self) -> int:
        """How many outcomes could not be written, and wait to be tried again."""
        return len(self._refused)

    def pump(self) -> list[tuple[PartitionProcessor, Outcome]]:
        """Make durable what was noted; gives the outcomes that are complete by it."""
        reports: list[tuple[PartitionProcessor, Report]] = []
        while self._noted:
            reports.append(self._noted.popleft())
        items: list[Item] = []
        if self._refused and self._clock.now() >= self._again:
            items, self._refused = self._refused, []
        writes = [write for item in items for write in item.writes]
        for _, report in reports:
            for _, sends in report.sent:
                writes += sends
            for outcome in report.outcomes:
                writes += outcome.writes
        refused = self._publish(writes) if writes else None
        if refused:
            items += [item for each in reports for item in _items(*each)]
            return self._keep(items, refused)
        self._settle(items)
        for processor, report in reports:
            processor.settle(report.offsets)
        complete = [(item.processor, item.outcome) for item in items if item.outcome is not None]
        return complete + [
            (processor, outcome) for processor, report in reports for outcome in report.outcomes
        ]

    def next_due(self) -> int | None:
        """When refused writes will be tried again."""
        return self._again if self._refused else None

    def _publish(self, writes: list[Write]) -> set[int]:
        """Write; gives what was refused."""
        try:
            self._publisher.publish(writes)
        except PublishError as error:
            return self._note_refusal(error, writes)
        self._wait = REFUSED_WAIT
        return set()

    def _keep(
        self, items: list[Item], refused: set[int]
    ) -> list[tuple[PartitionProcessor, Outcome]]:
        """Keep the records of refused writes for later; the others are complete."""
        complete: list[Item] = []
        for item in items:
            again = [write for write in item.writes if id(write) in refused]
            if again:  # and only those: the others are durable, and would be there twice
                self._refused.append(item._replace(writes=again))
            else:
                complete.append(item)
        self._settle(complete)
        return [(item.processor, item.outcome) for item in complete if item.outcome is not None]

    def _settle(self, items: list[Item]) -> None:
        for item in items:
            item.processor.settle([item.offset])

    def _note_refusal(self, error: PublishError, writes: list[Write]) -> set[int]:
        """Which writes were refused; all of them where that is not known."""
        now = self._clock.now()
        if not self._refused:  # else those that wait already would wait longer, again and again
            self._again = now + self._wait
            self._wait = min(2 * self._wait, REFUSED_LONGEST)
        log.error(
            "%s; its record stays where it is, and it is tried again in %d ms",
            error,
            self._again - now,
        )
        return set(map(id, error.refused or writes))


def _items(processor: PartitionProcessor, report: Report) -> list[Item]:
    return [
        *(Item(processor, offset, (), None) for offset in report.done),
        *(Item(processor, offset, sends, None) for offset, sends in report.sent),
        *(Item(processor, each.offset, each.writes, each) for each in report.outcomes),
    ]
