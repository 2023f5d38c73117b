"""Halving: which record makes a job fail? Its range is run alone, then in halves, until it is one.

Whatever of a range is harmless is run and committed on the way. Nothing is written down: a driver
that starts anew begins the search anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from redrive.engines.spark.ranges import Range
from redrive.record import TopicPartition


class _Suspect(NamedTuple):
    size: int
    """How many records are tried at once."""
    until: int
    """Behind this offset nobody is suspected."""


class Suspects:
    """The partitions that have a record which makes jobs fail, as far as is known."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, _Suspect] = {}

    def share_out(self, ranges: Sequence[Range]) -> list[list[Range]]:
        """The jobs to run one after the other: those of suspects alone, the others together."""
        alone = [[self._part(each)] for each in ranges if each.place in self._found]
        together = [each for each in ranges if each.place not in self._found]
        return [*alone, together] if together else alone

    def blame(self, ranges: Sequence[Range]) -> bool:
        """A job of these ranges failed; gives whether the record is found: it was all there was."""
        if len(ranges) > 1:
            for each in ranges:
                self._found[each.place] = _Suspect(each.size, each.end)
            return False
        (alone,) = ranges
        known = self._found.get(alone.place, _Suspect(alone.size, alone.end))
        if alone.size == 1:
            self._found.pop(alone.place, None)
            return True
        self._found[alone.place] = known._replace(size=max(1, alone.size // 2))
        return False

    def passed(self, ranges: Sequence[Range]) -> None:
        """A job of these ranges went well."""
        for each in ranges:
            known = self._found.get(each.place)
            if known is not None and each.end >= known.until:
                del self._found[each.place]

    def _part(self, each: Range) -> Range:
        return each._replace(end=min(each.end, each.start + self._found[each.place].size))
