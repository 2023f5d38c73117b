"""Where to start reading partitions, given the committed offsets and the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from redrive.engines.words import From
from redrive.numbers import counted
from redrive.ports import Position
from redrive.processing.progress.notes import TOPIC, noted
from redrive.record import TopicPartition


class View(NamedTuple):
    """One partition, as seen at one moment."""

    begin: int
    """The first offset that can be read."""
    end: int
    """The offset after the last readable record: not past open transactions."""
    committed: Position | None


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that were deleted before they were complete."""

    place: TopicPartition
    committed: int
    begin: int
    end: int

    def __str__(self) -> str:
        if self.committed > self.end:
            return (
                f"{self.place}: the committed offset is {self.committed}, but the log ends at"
                f" {self.end}: the topic was recreated, or a broker lost the end of the log"
            )
        return (
            f"{self.place}: the committed offset is {self.committed}, but the log begins at"
            f" {self.begin}: up to"
            f" {counted(self.begin - self.committed, 'record was', 'records were')} deleted unread"
        )


def begin_at(
    views: Mapping[TopicPartition, View], start_from: From, since_recreated: Collection[str] = ()
) -> dict[TopicPartition, int]:
    """Where to start reading partitions without progress.

    A partition that was added to a topic with progress holds only records that came later, and so
    do topics that were recreated while the app ran: they are read from their beginning, whatever
    `--from` says for the first start.
    """
    with_progress = {place.topic for place, view in views.items() if view.committed is not None}
    known = with_progress.union(since_recreated)
    return {
        place: view.begin if start_from == "earliest" or place.topic in known else view.end
        for place, view in views.items()
        if view.committed is None
    }


def recreated(
    committed: Mapping[TopicPartition, Position | None],
    ids: Mapping[str, str],
    known: Mapping[str, str],
) -> set[str]:
    """The topics that were recreated since their progress was committed.

    A commit records the id of its topic. A broker forgets the progress of a deleted topic: then
    only a process that knew the old topic can tell.
    """
    return {
        place.topic
        for place, position in committed.items()
        if is_of_another(position, ids[place.topic])
        or (position is None and known.get(place.topic, ids[place.topic]) != ids[place.topic])
    }


def is_of_another(position: Position | None, topic_id: str) -> bool:
    """Whether an offset was committed for another topic, which had the same name."""
    return position is not None and noted(position, TOPIC) not in ("", topic_id)


def lost(views: Mapping[TopicPartition, View]) -> list[Lost]:
    """Which partitions cannot continue where they stopped."""
    return [
        Lost(place, view.committed.offset, view.begin, view.end)
        for place, view in views.items()
        if view.committed is not None and not view.begin <= view.committed.offset <= view.end
    ]
