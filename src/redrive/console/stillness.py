"""Stillness: since when no run was seen to work on an app's topics. Pure.

A run shows itself by the offsets that it commits, or as a member of the app's group. One on Spark
has no members, and members are not told while a group rebalances: one look says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from redrive.record import TopicPartition


class Stillness:
    """Remembers when each topic was last worked on, as far as somebody has looked."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int | None] = {}
        self._worked_on: dict[str, int] = {}
        self._waits: dict[str, int] = {}

    def look(
        self,
        now: int,
        committed: Mapping[TopicPartition, int | None],
        waiting: Collection[str],
        attended: Collection[str],
    ) -> None:
        """Note what is seen `now`, in milliseconds since 1970.

        `waiting`: topics with records that could be handled; `attended`: those that members of the
        group are assigned to.
        """
        moved = {
            place.topic
            for place, offset in committed.items()
            if place in self._committed and self._committed[place] != offset
        }
        for topic in {place.topic for place in committed}:
            if topic in moved or topic in attended or topic not in self._worked_on:
                self._worked_on[topic] = now
        self._committed.update(committed)
        self._waits = {topic: self._waits.get(topic, now) for topic in waiting}

    def unread_since(self, topic: str) -> int | None:
        """Since when records of a topic wait and nobody handles any; None: nothing waits."""
        if topic not in self._waits:
            return None
        return max(self._waits[topic], self._worked_on.get(topic, 0))

    def quiet_since(self) -> int | None:
        """Since when nobody has worked on any topic; None: nobody ever has, as far as is known."""
        if all(offset is None for offset in self._committed.values()):
            return None
        return max(self._worked_on.values(), default=None)
