"""Batches under way: since when, and a warning for one that lasts longer than it should."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

from redrive.engines.words import LaneName
from redrive.tuning import BATCH_GRACE

log: Final = logging.getLogger("redrive.spark")

_LONG: Final = (
    "a handler takes long, or an acknowledgement does not come; the executors' logs name the record"
)
_FIRST: Final = (
    "it is the first one, for which Python processes start, import the app and open its resources;"
    " if a handler takes long, the executors' logs name the record"
)


@dataclass
class _Batch:
    number: int
    since: float
    warn_after: float


class UnderWay:
    """The batches of a run's lanes. May be used from many threads."""

    def __init__(self, deadline: float, clock: Callable[[], float] = monotonic) -> None:
        self._deadline = deadline
        self._clock = clock
        self._batches: dict[LaneName, _Batch] = {}
        self._begun: set[LaneName] = set()
        """Lanes of which a batch has ended: their Python processes have started."""

    @contextmanager
    def batch(self, lane: LaneName, number: int) -> Iterator[None]:
        """Note that a batch is under way within the block."""
        patience = self._deadline + BATCH_GRACE
        mine = self._batches[lane] = _Batch(number, self._clock(), patience)
        try:
            yield
            self._begun.add(lane)
        finally:
            if self._batches.get(lane) is mine:  # the lane may have been started again meanwhile
                del self._batches[lane]

    def seconds(self, lane: LaneName) -> float | None:
        """For how long a lane's batch has been under way; None: there is none."""
        batch = self._batches.get(lane)
        return None if batch is None else self._clock() - batch.since

    def warn(self) -> None:
        """Log batches that are over their deadline: at first, and each time after twice as long."""
        for lane, batch in list(self._batches.items()):
            seconds = self._clock() - batch.since
            if seconds < batch.warn_after:
                continue
            batch.warn_after = 2 * seconds
            log.warning(
                "%s lane: batch %d has been under way for %.0f s, though its tasks should end after"
                " %.0f s: %s",
                lane,
                batch.number,
                seconds,
                self._deadline,
                _LONG if lane in self._begun else _FIRST,
            )
