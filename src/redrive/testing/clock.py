"""A clock that only moves when it is told to: hours of retries pass in milliseconds."""

from __future__ import annotations

import threading
from typing import Final

from redrive.durations import milliseconds

START: Final = 1_700_000_000_000
"""Where a virtual clock starts unless told otherwise: a fixed time, so that tests repeat."""


class VirtualClock:
    """A `Clock` under the test's control. Safe to use from many threads."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._lock = threading.Lock()

    def now(self) -> int:
        """Milliseconds since 1970."""
        with self._lock:
            return self._now

    def advance(self, by: int | str) -> int:
        """Move forward by milliseconds, or by a duration such as "5m"; gives the new time."""
        step = milliseconds(by) if isinstance(by, str) else by
        if step < 0:
            raise ValueError(f"cannot advance by {step} ms: use set() to turn the clock back")
        with self._lock:
            self._now += step
            return self._now

    def set(self, now: int) -> None:
        """Set the time, also backwards: what a corrected machine clock does."""
        with self._lock:
            self._now = now

    def __repr__(self) -> str:
        return f"VirtualClock({self.now()})"
