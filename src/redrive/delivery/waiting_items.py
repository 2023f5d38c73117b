"""WaitingItems: records whose writes were refused; they wait until their topics take writes again.

Whatever comes for a topic that takes nothing, or for a key of which a message was refused, waits
behind those that were refused, without being tried, so that the order of messages stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from redrive.delivery.items import Item, Key, keys_of

if TYPE_CHECKING:
    from redrive.delivery.refusing_topics import RefusingTopics
    from redrive.errors import PublishError

_offset: Final = attrgetter("offset")


class WaitingItems:
    """The records of one process that wait for topics. Used by one thread at a time."""

    def __init__(self, topics: RefusingTopics) -> None:
        self._topics = topics
        self._refused: list[Item] = []
        self._behind: list[Item] = []
        """Not tried, because of others that were refused."""

    def __len__(self) -> int:
        return len(self._refused) + len(self._behind)

    @property
    def items(self) -> list[Item]:
        """All of them."""
        return [*self._refused, *self._behind]

    def next_due(self, *, trying: bool) -> int | None:
        """When it is looked again whether their topics take writes, in steady time.

        At once where nobody is being tried, and no topic is to be looked at: whoever was to be
        tried has gone with its partition.
        """
        if not len(self):
            return None
        due = self._topics.next_due
        return due if due is not None or trying else 0

    def hold(self, item: Item, reasons: Iterable[PublishError]) -> None:
        """Let a record wait whose writes were refused."""
        self._refused.append(item)
        for reason in reasons:
            self._topics.note(reason, _topics(item))

    def hold_behind(self, item: Item) -> None:
        """Let a record wait that would be refused, or overtake one that was."""
        self._behind.append(item)

    def due(self, now: int, *, trying: bool) -> tuple[list[Item], list[Item]]:
        """The records whose topics are worth another try at that time, in their order.

        None while others are tried: if those are refused again, their keys have to wait for them.

        And those that waited behind others, where some of those have gone with their partition, or
        wait for another topic by now.
        """
        due = self.next_due(trying=trying)
        if due is None or now < due or trying:
            return [], []
        # Whoever was refused again stands behind those that it came before.
        held, behind = sorted(_alive(self._refused), key=_offset), _alive(self._behind)
        if not held:  # nobody is left who was refused: those behind them go first now
            held, behind = behind, []
        loose, self._behind = (behind, []) if len(held) < len(self._refused) else ([], behind)
        self._topics.keep({topic for item in (*held, *behind) for topic in _topics(item)})
        self._refused = []
        free: list[Item] = []
        blocked: set[Key] = set()
        for item in held:
            keys = keys_of(item)
            if self._topics.until(_topics(item)) is not None or keys & blocked:
                self._refused.append(item)
                blocked |= keys
            else:
                free.append(item)
        for item in behind:
            self._topics.until(_topics(item))  # perhaps nobody else asks about these
        idle = self._topics.to_be_tried.difference(*map(_topics, free))
        if idle:  # whoever was refused there is not tried for them: those behind go on
            self._topics.taken(idle)
            loose, self._behind = behind, []
        return free, loose

    def taken(self, items: Iterable[Item]) -> list[Item]:
        """Note that these were taken after all; returns all that waited behind others."""
        topics = {topic for item in items for topic in _topics(item)}
        # A topic that refuses others, of another partition say, is still looked at for them.
        waiting = {topic for item in self._refused for topic in _topics(item)}
        self._topics.taken(topics - waiting)
        behind, self._behind = _alive(self._behind), []
        return behind


def _topics(item: Item) -> set[str]:
    """What a record waits for; one that has nothing to write, for something that has no name."""
    return {write.topic for write in item.writes} or {""}


def _alive(items: Iterable[Item]) -> list[Item]:
    """Without those of partitions that went: they are their next owner's."""
    return [item for item in items if not item.processor.closed]
