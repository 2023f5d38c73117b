"""Endings: when a run with an end is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from redrive.engines.figures import Figures
from redrive.engines.words import LaneName, Until
from redrive.ports import Clock


class Run(Protocol):
    """What an ending needs to know of a run, and does to it."""

    @property
    def figures(self) -> Figures: ...

    @property
    def lanes(self) -> tuple[LaneName, ...]: ...

    def status(self, lane: LaneName) -> Mapping[str, Any]: ...

    def start_lane(self, lane: LaneName) -> None: ...

    def end_lane(self, lane: LaneName) -> None: ...


Ending = Callable[[], bool]
"""Asked again and again; true when the run is over."""


def ending(until: Until, run: Run, clock: Clock) -> Ending:
    """The ending of that kind."""
    if until == "once":
        return Once(run)
    if until == "empty":
        return Empty(run, clock)
    return lambda: False


class Once:
    """The lanes one after the other, each up to what was there when it began.

    What the main lane parks can be due when the retry lane begins: then it runs as well.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._left = list(run.lanes)

    def __call__(self) -> bool:
        """Whether the last lane is done; begins the next one otherwise."""
        while self._left and self._run.status(self._left[0]).get("reached"):
            self._run.end_lane(self._left.pop(0))
            if self._left:
                self._run.start_lane(self._left[0])
        return not self._left


class Empty:
    """Nothing ahead in any lane.

    Records move between the lanes, so that each can be empty when it is looked at while one is on
    its way. So: the main lane is empty, after that the retry lane, after that still the main lane,
    which has run nothing meanwhile. Then nothing was on its way.
    """

    def __init__(self, run: Run, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        self._seen: list[int] = []
        self._batches = 0

    def __call__(self) -> bool:
        """Whether nothing waits any more."""
        lanes: list[LaneName] = [
            "main",
            *(lane for lane in self._run.lanes if lane != "main"),
            "main",
        ]
        if self._seen and self._seen[-1] > self._clock.now():
            self._seen = []  # the clock was set back: what was seen cannot be compared with it
        since = self._seen[-1] if self._seen else 0
        status = self._run.status(lanes[len(self._seen)])
        # After the status: a batch that ended before it was planned is counted then.
        batches = self._run.figures.batches("main")
        if batches != self._batches:
            self._batches = batches
            self._seen = []
            return False
        if status.get("trouble") or status.get("at", 0) <= since:
            return False
        if not status.get("empty"):
            self._seen = []
            return False
        self._seen.append(self._clock.now())
        return len(self._seen) == len(lanes)
