"""Straight: received records that wait to run in the order in which they were read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.processing.at_once import Stretch

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.processing.processor import PartitionProcessor
    from redrive.record import Record

_SLOW: Final = 0.02
"""Seconds, after which those behind a record do not wait for it any more, if they need not."""


class Straight:
    """They wait for the stretch before them; at most one is under way."""

    def __init__(self) -> None:
        self.stretch: Stretch | None = None
        """The one that is under way."""
        self._waiting: deque[Record] = deque()
        self._since = 0.0
        self._read_at = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def extend(self, records: Iterable[Record], now: int) -> None:
        """Have more of them wait."""
        if not self._waiting:
            self._since = monotonic()
        self._read_at = now
        self._waiting.extend(records)

    def take_all(self) -> deque[Record]:
        """Take all that wait."""
        waiting, self._waiting = self._waiting, deque()
        return waiting

    def begin(self, processor: PartitionProcessor, handler: Handler) -> Stretch:
        """Make a stretch of all that wait."""
        self.stretch = Stretch(processor, handler, self.take_all(), self._read_at)
        return self.stretch

    def end(self, stretch: Stretch) -> None:
        """A stretch has ended: those that had no turn wait again, before all others."""
        self.stretch = None
        self._take_rest(stretch)
        self._since = monotonic()

    def cut(self) -> None:
        """Take those away from the stretch under way that have not begun."""
        if self.stretch is not None:
            self._take_rest(self.stretch)

    @property
    def too_slow(self) -> bool:
        """Whether one that runs, or the first that waits, takes long."""
        if self.stretch is None and not self._waiting:
            return False
        since = self._since if self.stretch is None else self.stretch.since
        return monotonic() - since >= _SLOW

    def _take_rest(self, stretch: Stretch) -> None:
        self._waiting.extendleft(reversed(stretch.take_rest()))
