"""Halving: which record makes a job fail? Its range is run alone, then in halves, until it is one.

Whatever of a range is harmless is run and committed on the way. Behind a record that was found the
rest is taken in growing parts, because where one is at fault others often are. Nothing is written
down: a driver that starts again begins the search again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from redrive.engines.spark.ranges import Range
from redrive.record import TopicPartition
from redrive.tuning import HALVING_GROWTH

PROOF: Final = 2
"""So often a Python worker has to die with one record alone before that is buried."""


class _Suspect(NamedTuple):
    size: int
    """How many records are tried at once."""
    until: int
    """Behind this offset nobody is suspected."""
    within: int
    """Before this offset, and not before what is complete, one is at fault for sure."""
    alone: int = -1
    """The record that was alone in a job that failed, and in how many."""
    times: int = 0


class Suspects:
    """The partitions that have a record which makes jobs fail, as far as is known."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, _Suspect] = {}

    def share_out(self, ranges: Sequence[Range]) -> list[list[Range]]:
        """The jobs to run one after the other: those of suspects alone, the others together."""
        alone = [[self._part(each)] for each in ranges if each.place in self._found]
        together = [each for each in ranges if each.place not in self._found]
        return [*alone, together] if together else alone

    def blame(self, ranges: Sequence[Range], *, proof: int = 1) -> bool:
        """A job of these ranges failed; returns whether it is proven which record is at fault.

        It is one that was all there was in a job, in so many jobs that failed as `proof` says.
        """
        if len(ranges) > 1:
            self.suspect(ranges)
            return False
        (alone,) = ranges
        known = self._found.get(alone.place)
        until = alone.end if known is None else known.until
        if alone.size > 1:
            self._found[alone.place] = _Suspect(alone.size // 2, until, alone.end)
            return False
        times = 1 + (known.times if known is not None and known.alone == alone.start else 0)
        self._found[alone.place] = _Suspect(1, until, alone.end, alone.start, times)
        return times >= proof

    def suspect(self, ranges: Sequence[Range]) -> None:
        """One of these ranges may be at fault: each is to be run alone. Nothing is proven yet."""
        for each in ranges:
            self._found.setdefault(each.place, _Suspect(each.size, each.end, each.start))

    def forget(self, topic: str) -> None:
        """Suspect nobody of a topic any more."""
        self._found = {at: each for at, each in self._found.items() if at.topic != topic}

    def __contains__(self, place: TopicPartition) -> bool:
        """Whether a partition is suspected."""
        return place in self._found

    def passed(self, ranges: Sequence[Range]) -> None:
        """A job of these ranges went well, or its record has ended."""
        for each in ranges:
            known = self._found.get(each.place)
            if known is None:
                continue
            if each.end >= known.until:
                del self._found[each.place]
            elif each.end >= known.within:
                self._found[each.place] = known._replace(size=known.size * HALVING_GROWTH)

    def stands_still(self, each: Range) -> None:
        """A job of this range ran nothing: more of its partition is tried at once, or all of it."""
        known = self._found.get(each.place)
        if known is None:
            return
        size = known.size * HALVING_GROWTH
        if each.start + size >= known.until:
            del self._found[each.place]
        else:
            self._found[each.place] = known._replace(size=size, within=each.start)

    def _part(self, each: Range) -> Range:
        known = self._found[each.place]
        ends = [each.end, each.start + known.size]
        if known.within > each.start:
            ends.append(known.within)
        return each._replace(end=min(ends))
