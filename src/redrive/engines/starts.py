"""Where partitions begin, from what was committed and what is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from redrive.engines.words import From
from redrive.errors import RedriveError
from redrive.ports import Position
from redrive.record import TopicPartition


class DataLossError(RedriveError):
    """Records are gone although they were not complete."""


class View(NamedTuple):
    """One partition, as it was seen at one moment."""

    begin: int
    """The first offset that can be read."""
    end: int
    """The offset after the last that can be read: open transactions are not passed."""
    committed: Position | None


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that are gone although they were not complete."""

    place: TopicPartition
    committed: int
    begin: int
    end: int

    def __str__(self) -> str:
        if self.committed > self.end:
            return (
                f"{self.place}: progress is at offset {self.committed}, but the log ends at"
                f" {self.end}: the topic was made anew, or a broker lost its end"
            )
        return (
            f"{self.place}: progress is at offset {self.committed}, but the log begins at"
            f" {self.begin}: up to {self.begin - self.committed} records were deleted unread"
        )


def begin_at(
    views: Mapping[TopicPartition, View], start_from: From, made_anew: Collection[str] = ()
) -> dict[TopicPartition, int]:
    """Where partitions begin that have no progress yet.

    A partition that was added to a topic with progress holds only records that came later, and so
    do topics that were made anew while the app ran: they begin at their beginning, whatever was
    asked for the first start.
    """
    with_progress = {place.topic for place, view in views.items() if view.committed is not None}
    known = with_progress.union(made_anew)
    return {
        place: view.begin if start_from == "earliest" or place.topic in known else view.end
        for place, view in views.items()
        if view.committed is None
    }


def lost(views: Mapping[TopicPartition, View]) -> list[Lost]:
    """Which partitions cannot go on where they were."""
    return [
        Lost(place, view.committed.offset, view.begin, view.end)
        for place, view in views.items()
        if view.committed is not None and not view.begin <= view.committed.offset <= view.end
    ]
