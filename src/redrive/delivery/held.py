"""Held: records whose writes were refused; they wait until their topics take writes again.

Whatever comes for a topic that takes nothing waits behind those that were refused, without being
tried, so that the order of its messages stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from redrive.delivery.refusing import RefusingTopics
    from redrive.errors import PublishError
    from redrive.processing.outcomes import Outcome
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.work import Work
    from redrive.record import Record, Write


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

    def __init__(self, topics: RefusingTopics) -> None:
        self._topics = topics
        self._refused: list[Item] = []
        self._behind: list[Item] = []
        """Not tried, because their topics were shut when they came."""

    def __len__(self) -> int:
        return len(self._refused) + len(self._behind)

    @property
    def next_due(self) -> int | None:
        """When it is looked again whether their topics take writes."""
        return self._topics.next_due if len(self) else None

    def hold(self, item: Item, reasons: Iterable[PublishError]) -> None:
        """Let a record wait whose writes were refused."""
        self._refused.append(item)
        for reason in reasons:
            self._topics.note(reason, _topics(item))

    def hold_behind(self, item: Item) -> None:
        """Let a record wait that writes to a shut topic."""
        self._behind.append(item)

    def due(self, now: int) -> list[Item]:
        """The records whose topics are worth another try at that time, in their order."""
        due = self._topics.next_due
        if not len(self) or due is None or now < due:
            return []
        held, self._behind = _alive(self._refused), _alive(self._behind)
        if not held:  # nobody is left who was refused: those behind them go first now
            held, self._behind = self._behind, []
        self._topics.keep({topic for item in (*held, *self._behind) for topic in _topics(item)})
        self._refused = []
        free: list[Item] = []
        for item in held:
            waits = self._topics.until(_topics(item)) is not None
            (self._refused if waits else free).append(item)
        return free

    def taken(self, items: Iterable[Item]) -> list[Item]:
        """Take note that these were taken after all; returns those that waited behind them."""
        topics = {write.topic for item in items for write in item.writes}
        if not topics:
            return []
        self._topics.taken(topics)
        behind, self._behind = _alive(self._behind), []
        return behind


def _topics(item: Item) -> set[str]:
    """What a record waits for; one that has nothing to write, for something that has no name."""
    return {write.topic for write in item.writes} or {""}


def _alive(items: Iterable[Item]) -> list[Item]:
    """Without those of partitions that went: they are their next owner's."""
    return [item for item in items if not item.processor.closed]
