"""RowAudit: every row that was read comes out once, in its order.

Before the handler each row of a task is numbered by Spark. So a row that is missing or doubled is
seen by its number alone, and gaps in the offsets (transaction markers, compaction) are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from redrive.engines.spark.frames.columns import MIXED
from redrive.errors import RedriveError
from redrive.record import TopicPartition


class RowsError(RedriveError):
    """A frame handler did not give back the rows that it was given."""


class Gap(NamedTuple):
    """Offsets whose rows did not come out before the row at `at`."""

    at: int
    start: int
    end: int


class RowAudit:
    """The rows of one task."""

    def __init__(self, place: TopicPartition, start: int) -> None:
        self.next_offset = start
        self._place = place
        self._next_number = 0

    def check(self, numbers: Sequence[int], offsets: Sequence[int]) -> list[Gap]:
        """Check the next rows; returns what is missing among them."""
        first = self._next_number
        if numbers == list(range(first, first + len(numbers))):  # as nearly always
            gaps: list[Gap] = []
        else:
            gaps = list(self._gaps(numbers, offsets))
        self._next_number = numbers[-1] + 1
        self.next_offset = offsets[-1] + 1
        return gaps

    def _gaps(self, numbers: Sequence[int], offsets: Sequence[int]) -> Iterator[Gap]:
        expected, begin = self._next_number, self.next_offset
        for index, (number, offset) in enumerate(zip(numbers, offsets, strict=True)):
            if number < expected:
                raise RowsError(
                    f"the frame handler returned {self._place}@{offset} twice, or out of order:"
                    " it must return every row once; a join may have found two matches"
                )
            if number > expected:
                yield Gap(index, begin, offset)
            expected, begin = number + 1, offset + 1


def stranger(place: TopicPartition, other: TopicPartition, offset: int) -> RowsError:
    """What is said of a row that was read by another task."""
    return RowsError(
        f"the frame handler returned {other}@{offset} among the rows of {place}: each row must stay"
        " in the task that read it"
    )


def missing(place: TopicPartition, offset: int) -> RowsError:
    """What is said of a row that the handler kept to itself."""
    return RowsError(
        f"the frame handler did not return {place}@{offset}: it must return every row once, with an"
        " outcome; use done() for those that need nothing, instead of a filter"
    )


def no_outcome(place: TopicPartition, offset: int, kind: str | None) -> RowsError:
    """What is said of a row without an outcome, or with one that says nothing."""
    came = f"the frame handler returned {place}@{offset} with"
    if kind is None:
        return RowsError(f"{came} no outcome (null): end your when(...) with .otherwise(...)")
    if kind == MIXED:
        return RowsError(
            f"{came} several outcomes that are not all send(...): one row is either sent, parked"
            " or buried; use done() where an array has nothing to send"
        )
    return RowsError(f"{came} an outcome of the kind {kind!r}, which is none of redrive's")
