"""FlushDelivery: write, wait until it is durable, and only then count the record as complete."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive import failpoints
from redrive.errors import PublishError, RedriveError
from redrive.processing.outcomes import Outcome, Report
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.ports import Clock, Handover, Publisher
    from redrive.processing.processor import PartitionProcessor


class Item(NamedTuple):
    """One record that is complete once its writes are durable."""

    processor: PartitionProcessor
    offset: int
    writes: Sequence[Write]
    outcome: Outcome | None
    """None: the record is done, and these are what its handler has sent."""


Noted = tuple["PartitionProcessor", Report]
Complete = tuple["PartitionProcessor", Outcome]

log: Final = logging.getLogger("redrive.delivery")

REFUSED_WAIT: Final = 1000
REFUSED_LONGEST: Final = 30_000
"""Milliseconds until refused writes are tried again: doubled each time, up to the second."""


class FlushDelivery:
    """At least once: everything is durable before its offset is complete.

    `take` only takes note. `pump` hands over, in one thread, all that has come in between, once
    what was handed over before is durable: nobody waits for the broker as long as there is work.
    """

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock
        self._noted: deque[Noted] = deque()
        self._on_the_way: tuple[Handover, list[Noted]] | None = None
        self._refused: list[Item] = []
        self._wait = REFUSED_WAIT
        self._again = 0
        self.taken = 0
        """How many reports were taken."""
        self.settled = 0
        """How many of them, in the order in which they came, are durable or refused."""

    def take(self, processor: PartitionProcessor, report: Report) -> None:
        """Take note of outcomes."""
        self._noted.append((processor, report))
        self.taken += 1

    @property
    def refused(self) -> int:
        """How many outcomes could not be written, and wait to be tried again."""
        return len(self._refused)

    @property
    def outstanding(self) -> bool:
        """Whether something was noted or handed over that is neither durable nor refused yet."""
        return bool(self._noted) or self._on_the_way is not None

    def pump(self, wait: float = 0) -> list[Complete]:
        """Hand over what was noted; gives the outcomes that have become complete.

        With `wait`, up to that many seconds are given to what is on its way.
        """
        complete = [] if self._on_the_way else self._hand_over()
        if self._on_the_way is not None:
            handover, noted = self._on_the_way
            handover.poll(wait)
            if not handover.outstanding:
                self._on_the_way = None
                failpoints.hit("after-produce")
                complete += self._settle(noted, handover.error())
        if self._refused and self._clock.now() >= self._again:
            complete += self._try_again()
        return complete

    def next_due(self) -> int | None:
        """When refused writes will be tried again."""
        return self._again if self._refused else None

    def _hand_over(self) -> list[Complete]:
        writes: list[Write] = []
        noted: list[Noted] = []
        while self._noted:
            processor, report = self._noted.popleft()
            noted.append((processor, report))
            for _, sends in report.sent:
                writes += sends
            for outcome in report.outcomes:
                writes += outcome.writes
        if not writes:
            return self._settle(noted, None)
        try:
            self._on_the_way = (self._publisher.hand_over(writes), noted)
        except BaseException:
            self._noted.extendleft(reversed(noted))  # a mistake of ours: nobody is forgotten for it
            raise
        return []

    def _settle(self, noted: list[Noted], error: PublishError | None) -> list[Complete]:
        complete: list[Complete] = []
        if error is not None:
            complete = self._keep([item for each in noted for item in _items(*each)], error)
        else:
            for processor, report in noted:
                if report.outcomes and not self._forgotten(processor, report.outcomes):
                    complete += self._settled(_items(processor, report))
                    continue
                processor.settle(report.offsets)
                complete += [(processor, outcome) for outcome in report.outcomes]
        self.settled += len(noted)
        return complete

    def _try_again(self) -> list[Complete]:
        # Those of partitions that went are their next owner's.
        items = [each for each in self._refused if not each.processor.closed]
        refusal: PublishError | None = None
        try:
            self._publisher.publish([write for item in items for write in item.writes])
        except PublishError as error:
            refusal = error
        self._refused = []
        if refusal is not None:
            return self._keep(items, refusal)
        self._wait = REFUSED_WAIT
        return self._settled(items)

    def _keep(self, items: list[Item], error: PublishError) -> list[Complete]:
        """Keep the records of refused writes for later; the others are complete."""
        refused = self._note_refusal(error, items)
        complete: list[Item] = []
        for item in items:
            again = [write for write in item.writes if id(write) in refused]
            if again:  # and only those: the others are durable, and would be there twice
                self._refused.append(item._replace(writes=again))
            else:
                complete.append(item)
        return self._settled(complete)

    def _settled(self, items: list[Item]) -> list[Complete]:
        complete: list[Complete] = []
        for item in items:
            if item.outcome is not None and not self._forgotten(item.processor, [item.outcome]):
                self._refused.append(item._replace(writes=()))
                self._again = self._clock.now() + self._wait
                continue
            item.processor.settle([item.offset])
            if item.outcome is not None:
                complete.append((item.processor, item.outcome))
        return complete

    def _forgotten(self, processor: PartitionProcessor, outcomes: Sequence[Outcome]) -> bool:
        """Have dead letters forgotten that no unit of work has buried: they may be replayed."""
        # Those of a unit of work have nothing left to write, and are forgotten with its commit.
        buried = [each for each in outcomes if each.kind == "bury" and each.writes]
        try:
            return not buried or processor.forget(buried)
        except RedriveError as error:
            log.error("%s; records that were buried wait for it", error)  # noqa: TRY400 -- no mistake of ours
            return False

    def _note_refusal(self, error: PublishError, items: list[Item]) -> set[int]:
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
        return set(map(id, error.refused or [write for item in items for write in item.writes]))


def _items(processor: PartitionProcessor, report: Report) -> list[Item]:
    return [
        *(Item(processor, offset, (), None) for offset in report.done),
        *(Item(processor, offset, sends, None) for offset, sends in report.sent),
        *(Item(processor, each.offset, each.writes, each) for each in report.outcomes),
    ]
