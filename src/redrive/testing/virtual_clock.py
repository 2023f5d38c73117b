"""A clock that moves only when a test moves it: hours of retries pass in milliseconds."""

from __future__ import annotations

import threading
from typing import Final

from redrive.durations import milliseconds

START: Final = 1_700_000_000_000
"""Where a virtual clock starts by default: a fixed time, so that tests are repeatable."""


class VirtualClock:
    """A `Clock` under the test's control. Thread-safe."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._set_back = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        """Milliseconds since 1970."""
        with self._lock:
            return self._now

    def was_set(self) -> int:
        """By how many milliseconds it was set back: less than zero."""
        with self._lock:
            return -self._set_back

    def advance(self, by: int | str) -> int:
        """Move forward by milliseconds, or by a duration such as "5m"; returns the new time."""
        step = milliseconds(by) if isinstance(by, str) else by
        if step < 0:
            raise ValueError(f"cannot advance by {step} ms: use set() to turn the clock back")
        with self._lock:
            self._now += step
            return self._now

    def set(self, now: int) -> None:
        """Move forward to that time; or set it back, as happens to a corrected machine clock."""
        with self._lock:
            self._set_back += max(0, self._now - now)
            self._now = now

    def __repr__(self) -> str:
        return f"VirtualClock({self.now()})"
