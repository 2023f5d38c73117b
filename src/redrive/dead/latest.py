"""Latest: letters from the end of a dead topic backwards, a page at a time.

Whoever looks at a page wants those that died last. A page ends when it is full, when nothing is
left, or when its time is over; it says where the next one begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from redrive.dead.filters import Filter
from redrive.dead.scan import Found, Scanned, bounds_of
from redrive.tuning import DEAD_BLOCK, DEAD_PAGE_BYTES

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
    bytes_found, size = 0, min(DEAD_BLOCK, limit)
    while len(found) < limit and bytes_found < DEAD_PAGE_BYTES and timer() < until:
        places = [place for place, end in ends.items() if end > bounds[place][0]]
        if not places:
            break
        slowest = 0.0
        for place in places:
            began = timer()
            if began >= until:
                break
            start = max(bounds[place][0], ends[place] - size)
            room = _room(limit, len(found), len(places))
            most = _room(DEAD_PAGE_BYTES, bytes_found, len(places))
            kept, is_all = _last(scan.partition(place, start, ends[place]), room, most)
            found += kept
            bytes_found += sum(each.letter.record.weight for each in kept)
            # What there was no room for comes with the next page.
            ends[place] = start if is_all else kept[0].letter.record.offset
            slowest = max(slowest, timer() - began)
        # A block is read to its end, however long that takes: of large letters it is a short one.
        size = min(DEAD_BLOCK, 2 * size) if slowest < seconds / 8 else max(1, size // 2)
    found.sort(key=lambda each: (each.letter.died or 0, each.letter.place), reverse=True)
    left = sum(end - bounds[place][0] for place, end in ends.items())
    scan.result.complete = not left
    return Page(found, ends, scan.result, left)


def _last(found: Iterable[Found], room: int, most: int) -> tuple[deque[Found], bool]:
    """The last of them that there is room for, one at least, and whether these are all.

    The others are in memory for a moment only: letters may be large, and blocks are long.
    """
    kept: deque[Found] = deque()
    size, is_all = 0, True
    for each in found:
        kept.append(each)
        size += each.letter.record.weight
        while len(kept) > room or (size > most and len(kept) > 1):
            size -= kept.popleft().letter.record.weight
            is_all = False
    return kept, is_all


def _room(limit: int, found: int, places: int) -> int:
    """How many letters or bytes one partition may add, so that others have their share."""
    return max(1, -(-(limit - found) // places))
