"""The machine's clock, and steady time that passes evenly even if the clock is set."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from redrive.ports import Clock

_BEGAN: Final = time.time_ns() - time.monotonic_ns()
_DRIFT: Final = 1000
"""Milliseconds. Clocks are always corrected a little: smaller steps are ignored."""


class WallClock:
    """Milliseconds of the machine's clock."""

    _moved: ClassVar[int] = 0

    def now(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def was_set(self) -> int:
        """By how many milliseconds it was set while this process ran."""
        moved = (time.time_ns() - time.monotonic_ns() - _BEGAN) // 1_000_000
        if abs(moved - WallClock._moved) > _DRIFT:
            WallClock._moved = moved
        return WallClock._moved


def steady(clock: Clock) -> int:
    """The time as if nobody had set the clock: for measuring durations."""
    return clock.now() - clock.was_set()
