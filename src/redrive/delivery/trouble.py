"""Trouble: broker or database are away, and everybody waits."""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, Final

from redrive.backoff import Backoff
from redrive.envelope import text_of

if TYPE_CHECKING:
    from redrive.ports import Clock

log: Final = logging.getLogger("redrive.delivery")

_WAITS: Final = Backoff("100ms", factor=2, cap="10s", jitter=0)


class Trouble:
    """Whether units of work can be done at all; told once when it begins and once when it ends.

    May be used from many threads. Whoever fails while another has just failed adds nothing to it.
    """

    def __init__(self, clock: Clock) -> None:
        self.text = ""
        """What it is; empty while there is none."""
        self.noted = 0
        """How often it was met, ever."""
        self._clock = clock
        self._lock = Lock()
        self._began = 0
        self._times = 0
        self._until = 0

    def wait_until(self) -> int | None:
        """Until when nobody need try; None: now."""
        return self._until if self.text and self._clock.now() < self._until else None

    def begins(self, error: BaseException) -> int:
        """Take note that a unit could not be done; gives the time of the next try."""
        with self._lock:
            now = self._clock.now()
            if not self.text:
                self._began = now
                self._times = 0
                log.warning(
                    "nothing can be committed: %s; records wait until it is over, and none is"
                    " blamed for it",
                    text_of(error),
                )
            self.text = text_of(error) or type(error).__name__
            self.noted += 1
            if now >= self._until:
                self._times += 1
                self._until = now + _WAITS.wait(self._times)
            return self._until

    def is_over(self) -> None:
        """Take note that a unit was committed."""
        if not self.text:
            return
        with self._lock:
            if self.text:
                seconds = (self._clock.now() - self._began) / 1000
                log.warning("work is committed again, after %.1f s", seconds)
                self.text = ""
