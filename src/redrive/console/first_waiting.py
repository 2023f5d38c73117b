"""FirstWaiting: of each group of letters, since when the first of them waits for a decision. Pure.

8 bytes for each letter: when it died, and which letter of its group comes next in its partition.
None that is settled ever waits again, so each is passed once, however often somebody asks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

_LATEST: Final = 2**32 - 1


class FirstWaiting:
    """Letters by number, as they are in their partitions: whoever adds them counts from 0 on."""

    def __init__(self) -> None:
        self._died: dict[int, array[int]] = {}
        """In seconds since 1970; 0: not known."""
        self._next: dict[int, array[int]] = {}
        """The next one of the same group; the last one names itself."""
        self._ends: dict[tuple[int, int], list[int]] = {}
        """By group and partition: the first that may wait, and the last."""

    def add(self, group: int, partition: int, died: int | None) -> None:
        """Note the next letter of a partition, and when it died, in milliseconds."""
        times = self._died.setdefault(partition, array("I"))
        following = self._next.setdefault(partition, array("I"))
        at = len(times)
        times.append(min(max((died or 0) // 1000, 0), _LATEST))
        following.append(at)
        ends = self._ends.setdefault((group, partition), [at, at])
        following[ends[1]] = at
        ends[1] = at

    def since(self, waits: Callable[[int, int], bool]) -> dict[int, int]:
        """By group, when the first letter died that waits, in milliseconds since 1970.

        `waits`: whether that letter of that partition does.
        """
        found: dict[int, int] = {}
        for (group, partition), ends in self._ends.items():
            following, at = self._next[partition], ends[0]
            while following[at] != at and not waits(partition, at):
                at = following[at]
            ends[0] = at
            died = self._died[partition][at] * 1000
            if died and waits(partition, at):
                found[group] = min(found.get(group, died), died)
        return found
