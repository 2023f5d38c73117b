"""DeadBrake: stops a run that would bury most of its records: rather the app is broken than they.

The opposite of a guard: not what handlers depend on, but what was deployed. May be used from many
threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from redrive.envelope import text_of
from redrive.errors import TooManyDeadError
from redrive.fingerprint import error_name
from redrive.logs import one_line
from redrive.tuning import BRAKE_DEAD, BRAKE_WINDOW

if TYPE_CHECKING:
    from redrive.record import Record


class DeadBrake:
    """Counts what becomes of records, for some seconds, and ends the run if most would be dead."""

    def __init__(self, share: float, stop: Callable[[BaseException], None]) -> None:
        """`stop` gets the error that ends the run."""
        self._share = share
        self._stop = stop
        self._stopped = False
        self._seen: deque[tuple[int, int, int]] = deque()
        """Steady times, how many records ended well or wait, and how many would be dead."""
        self._well = self._dead = 0
        self._lock = Lock()

    def well(self, count: int, steady: int) -> None:
        """Note records that are done, or wait for another attempt."""
        with self._lock:
            self._add(steady, count, 0)

    def stops(self, record: Record, reason: str, error: BaseException, steady: int) -> bool:
        """Whether a record is not buried, because the run ends."""
        with self._lock:
            if self._stopped:
                return True
            self._add(steady, 0, 1)
            every = self._well + self._dead
            if self._dead < BRAKE_DEAD or self._dead < self._share * every:
                return False
            self._stopped = True
            said = one_line(text_of(error))[:200]
        self._stop(
            TooManyDeadError(
                f"{self._dead:,} of the last {every:,} records would be buried, the latest,"
                f" {record.place}, as {reason} ({error_name(error)}: {said}); with"
                f" stop_on_dead={self._share} the run ends instead. Those that are not in the dead"
                " topic yet are handled again by the next run: mend the app first, or bury them by"
                " a run without stop_on_dead="
            )
        )
        return True

    def _add(self, steady: int, well: int, dead: int) -> None:
        seen = self._seen
        second = steady // 1000
        if seen and seen[-1][0] == second:
            _, before, dead_before = seen.pop()
            seen.append((second, before + well, dead_before + dead))
        else:
            seen.append((second, well, dead))
        self._well += well
        self._dead += dead
        while seen[0][0] < second - BRAKE_WINDOW:
            _, gone, dead_gone = seen.popleft()
            self._well -= gone
            self._dead -= dead_gone
