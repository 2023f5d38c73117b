"""Trouble: broker or database are away, and everybody waits."""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, Final

from redrive.backoff import Backoff
from redrive.clock import steady
from redrive.delivery.store import StoreNotAllowedError
from redrive.envelope import text_of

if TYPE_CHECKING:
    from redrive.ports import Clock

log: Final = logging.getLogger("redrive.delivery")

_WAITS: Final = Backoff("100ms", factor=2, cap="10s", jitter=0)


class Trouble:
    """Whether units of work can be done at all; logged once when it begins and once when it ends.

    May be used from many threads. Whoever fails while another has just failed adds nothing to it.
    """

    def __init__(self, clock: Clock) -> None:
        self.text = ""
        """What it is; empty while there is none."""
        self.not_allowed: StoreNotAllowedError | None = None
        """Set where waiting does not help, because a privilege is missing: the run ends."""
        self.noted = 0
        """How often it was met, ever."""
        self._clock = clock
        self._lock = Lock()
        self._began = 0
        self._times = 0
        self._until = 0

    def wait_until(self) -> int | None:
        """Until when nobody need try, in steady time; None: now."""
        return self._until if self.text and steady(self._clock) < self._until else None

    def begins(self, error: BaseException) -> int:
        """Note that a unit could not be done; returns the steady time of the next try."""
        with self._lock:
            now = steady(self._clock)
            if not self.text:
                self._began = now
                self._times = 0
            if isinstance(error, StoreNotAllowedError):
                self.not_allowed = error  # whoever runs this ends with that sentence
            elif not self.text:
                log.warning(
                    "nothing can be committed: %s; records wait, and no attempt is counted",
                    text_of(error),
                )
            self.text = text_of(error) or type(error).__name__
            self.noted += 1
            if now >= self._until:
                self._times += 1
                self._until = now + _WAITS.wait(self._times)
            return self._until

    def is_over(self) -> None:
        """Note that a unit was committed."""
        if not self.text:
            return
        with self._lock:
            if self.text:
                seconds = (steady(self._clock) - self._began) / 1000
                log.warning("commits work again after %.1f s", seconds)
                self.text = ""
                self.not_allowed = None
