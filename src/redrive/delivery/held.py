"""Held: records whose writes were refused; they wait until their topics take writes again.

A topic that takes nothing is shut: whatever comes for it meanwhile waits behind those that were
refused, without being tried, so that the order of its messages stays. It is asked about now and
then, without writing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.errors import PublishError, RedriveError

if TYPE_CHECKING:
    from redrive.ports import Clock, Publisher
    from redrive.processing.outcomes import Outcome
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.work import Work
    from redrive.record import Record, Write

log: Final = logging.getLogger("redrive.delivery")

REFUSED_WAIT: Final = 1000
REFUSED_LONGEST: Final = 30_000
"""Milliseconds until refused writes are tried again: doubled each time, up to the second."""


class Item(NamedTuple):
    """One record that is complete once its writes are durable."""

    processor: PartitionProcessor
    offset: int
    writes: Sequence[Write]
    outcome: Outcome | None
    """None: the record is done, and these are what its handler has sent."""
    subject: Work | Record | None = None
    """The record, where its handler has sent something."""


class Held:
    """The records of one process that wait for topics. Used by one thread at a time."""

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock
        self._refused: list[Item] = []
        self._behind: list[Item] = []
        """Not tried, because their topics were shut when they came."""
        self._told: dict[str, PublishError] = {}
        self._wait = REFUSED_WAIT
        self._again = 0
        self.shut: set[str] = set()
        """The topics that take nothing."""

    def __len__(self) -> int:
        return len(self._refused) + len(self._behind)

    @property
    def reason(self) -> str:
        """Why records wait, in one sentence; empty while none does."""
        return str(next(iter(self._told.values()), ""))

    @property
    def next_due(self) -> int | None:
        """When it is looked again whether their topics take writes."""
        return self._again if len(self) else None

    def hold(self, item: Item, reasons: Iterable[PublishError] = ()) -> None:
        """Let a record wait whose writes were refused."""
        if not self._refused:
            self._postpone()
        self._refused.append(item)
        for reason in reasons:
            self._tell(reason)

    def hold_behind(self, item: Item) -> None:
        """Let a record wait that writes to a shut topic."""
        if not len(self):
            self._postpone()
        self._behind.append(item)

    def ask(self, topics: Collection[str]) -> set[str]:
        """Which of these topics take nothing, asked before the first write to them.

        librdkafka would look for them for seconds, and more work would be done in vain meanwhile.
        """
        try:
            found = self._publisher.refusing(topics)
        except RedriveError:
            return {*topics}  # nobody answers: then the writes are refused one by one
        for reason in found.values():
            if reason.kind == "topic":
                self._tell(reason)
        return {*found}

    def due(self) -> list[Item]:
        """The records whose topics take writes again, in their order: they are held no more."""
        if not len(self) or self._clock.now() < self._again:
            return []
        held = _alive(self._refused)
        if not held:  # nobody is left who was refused: those behind them go first now
            held, self._behind = _alive(self._behind), []
        topics = {write.topic for item in held for write in item.writes}
        try:
            refusing: Collection[str] = self._publisher.refusing(topics)
        except RedriveError:
            refusing = topics  # nobody answers: neither would anybody take them
        waits = [any(write.topic in refusing for write in item.writes) for item in held]
        self._refused = list(compress(held, waits))
        if self._refused:
            self._postpone()
        elif not held:
            self._open(self._told)
        return list(compress(held, (not wait for wait in waits)))

    def taken(self, items: Sequence[Item]) -> list[Item]:
        """Take note that these were taken after all; returns those that waited behind them."""
        if not items:
            return []
        self._wait = REFUSED_WAIT
        for topic in {write.topic for item in items for write in item.writes} & self._told.keys():
            log.warning("writes to %s are taken again", topic)
            self._open([topic])
        behind, self._behind = _alive(self._behind), []
        return behind

    def _open(self, topics: Iterable[str]) -> None:
        for topic in list(topics):
            self.shut.discard(topic)
            self._told.pop(topic, None)

    def _tell(self, reason: PublishError) -> None:
        """Take note of why a topic refuses; it is told once."""
        if reason.kind == "topic":
            self.shut.add(reason.topic)
        before = self._told.get(reason.topic)
        if before is None or before.kind != reason.kind:
            log.error("%s; the records that need it stay where they are", reason)
        self._told[reason.topic] = reason

    def _postpone(self) -> None:
        self._again = self._clock.now() + self._wait
        self._wait = min(2 * self._wait, REFUSED_LONGEST)


def _alive(items: Iterable[Item]) -> list[Item]:
    """Without those of partitions that went: they are their next owner's."""
    return [item for item in items if not item.processor.closed]
