"""ParkedCounts: what waits for another attempt, counted in the background for all who look.

A page must not read every parked record for everybody who opens it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from math import inf
from threading import Lock
from time import monotonic
from typing import NamedTuple

from redrive.dead.parked import Parked
from redrive.threads import begin
from redrive.tuning import CONSOLE_PARKED, CONSOLE_PARKED_EVERY, CONSOLE_SCAN_SECONDS


class Waiting(NamedTuple):
    """What waits, as far as it is known."""

    parked: list[Parked]
    fresh: bool
    """Whether it is as of this moment, nearly; else it is being counted."""


class ParkedCounts:
    """Counts the parked records of one app, if somebody looks; one at a time counts for all."""

    def __init__(
        self, count: Callable[[int], list[Parked]], timer: Callable[[], float] = monotonic
    ) -> None:
        """`count` reads so many records of each topic, at most."""
        self._count = count
        self._timer = timer
        self._lock = Lock()
        self._known: list[Parked] = []
        self._known_at = -inf
        self._turn = 0
        self.version = 0
        """Grows whenever something was said about them: pages that are open hear of it."""
        self._counting: Future[list[Parked]] | None = None

    def look(self) -> Waiting:
        """What waits now; raises why it cannot be counted. Waits a little, if it is not known."""
        with self._lock:
            if self._timer() - self._known_at < CONSOLE_PARKED_EVERY:
                return Waiting(self._known, fresh=True)
            if self._counting is None or self._counting.done():
                self._turn += 1
                run = partial(self._run, self._turn)
                self._counting = begin(run, name="redrive-console-parked")
            counting = self._counting
        wait([counting], CONSOLE_SCAN_SECONDS)
        if counting.done():
            return Waiting(counting.result(), fresh=True)
        return Waiting(self._known, fresh=False)

    def outdated(self) -> None:
        """Something was said about them: whoever looks next has them counted again."""
        with self._lock:
            self._known_at = -inf
            self._turn += 1
            self.version += 1
            self._counting = None

    def _run(self, turn: int) -> list[Parked]:
        found = self._count(CONSOLE_PARKED)
        with self._lock:
            if turn == self._turn:  # else it began before something was said
                self._known, self._known_at = found, self._timer()
        return found
