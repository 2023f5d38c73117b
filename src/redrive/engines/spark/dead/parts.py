"""Parts: what of a dead topic each task reads, and the marks that it needs for it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from redrive.dead.filters import Filter
from redrive.dead.scan import Bounds
from redrive.dead.states import Marks
from redrive.tuning import DEAD_RANGE


class Part(NamedTuple):
    """A range of one partition, for one task."""

    number: int
    """Its place among all of them, in the order of partitions and offsets."""
    partition: int
    start: int
    end: int
    marks: Marks
    """What was done about the letters of this range: 12 bytes for each of them."""


def cut(
    topic: str, bounds: Bounds, wanted: Filter, marks: Marks, size: int = DEAD_RANGE
) -> list[Part]:
    """The parts of a dead topic that have to be read; at least one, which may be empty."""
    found: list[tuple[int, int, int]] = []
    for partition, whole in sorted(bounds.items()):
        if wanted.fits_partition(topic, partition):
            start, end = wanted.bounds(topic, partition, *whole)
            found += [(partition, at, min(at + size, end)) for at in range(start, end, size)]
    return [
        Part(number, *each, marks.within(*each)) for number, each in enumerate(found or [(0, 0, 0)])
    ]
