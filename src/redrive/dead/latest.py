"""Latest: letters from the end of a dead topic backwards, a page at a time.

Whoever looks at a page wants those that died last. A page ends when it is full, when nothing is
left, or when its time is over; it says where the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from redrive.dead.filters import Filter
from redrive.dead.scan import Found, Scanned, bounds_of
from redrive.tuning import DEAD_BLOCK

if TYPE_CHECKING:
    from redrive.dead.letters import DeadLetters
    from redrive.dead.state_topic import Known


class Page(NamedTuple):
    """Some letters, those that died last first."""

    found: list[Found]
    before: dict[int, int]
    """By partition, where the next page goes on: what is there has not been looked at."""
    scanned: Scanned
    left: int
    """Offsets that have not been looked at."""


def latest(
    letters: DeadLetters,
    wanted: Filter | None = None,
    *,
    before: Mapping[int, int] | None = None,
    limit: int = 50,
    seconds: float = 5.0,
    known: Known | None = None,
    timer: Callable[[], float] = monotonic,
) -> Page:
    """The letters that died last and fit; `before` of the page before, for the next one."""
    until = timer() + seconds
    bounds = bounds_of(letters.log, letters.topic)
    ends = {
        partition: max(first, min(end, (before or {}).get(partition, end)))
        for partition, (first, end) in bounds.items()
    }
    scan = letters.scan(wanted, known=known, bounds={})
    found: list[Found] = []
    while len(found) < limit and timer() < until:
        places = [place for place, end in ends.items() if end > bounds[place][0]]
        if not places:
            break
        for place in places:
            start = max(bounds[place][0], ends[place] - DEAD_BLOCK)
            block = [*scan.partition(place, start, ends[place])]
            kept = block[-_room(limit, len(found), len(places)) :]
            found += kept
            # What there was no room for comes with the next page.
            ends[place] = start if len(kept) == len(block) else kept[0].letter.record.offset
    found.sort(key=lambda each: (each.letter.died or 0, each.letter.place), reverse=True)
    left = sum(end - bounds[place][0] for place, end in ends.items())
    scan.result.complete = not left
    return Page(found, ends, scan.result, left)


def _room(limit: int, found: int, places: int) -> int:
    """How many letters one partition may add to the page, so that others have their share."""
    return max(1, -(-(limit - found) // places))
