"""Room: how much one transaction takes, as the producers of a process have learnt it.

A transaction that is not committed within its time-out is taken back by the broker, and a batch
that is larger than its topic's max.message.bytes is refused as a whole. Without this the same
transaction would fail in the same way for ever.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Final

MOST_WRITES: Final = 20_000
MOST_BYTES: Final = 16_000_000
_BATCHES: Final = (1_000_000, 100_000, 10_000, 1_000, 1)
"""Bytes of one batch: librdkafka's default, and what is tried after one was refused. A batch has
one message at least, so that the last of them is a message alone."""


class Room:
    """Shared by all transactional producers of a process. Safe for many threads."""

    def __init__(self) -> None:
        self.batch = _BATCHES[0]
        """The most bytes of one batch."""
        self._part = 1.0
        self._lock = Lock()

    @property
    def writes(self) -> int:
        """The most messages of one transaction."""
        return max(1, int(self._part * MOST_WRITES))

    @property
    def bytes(self) -> int:
        """The most bytes of its messages."""
        return max(1, int(self._part * MOST_BYTES))

    def was_late(self) -> None:
        """A transaction was not committed in its time: the next ones are smaller."""
        with self._lock:
            self._part = max(self._part / 2, 1 / MOST_WRITES)

    def was_in_time(self) -> None:
        """One was: they may grow again."""
        if self._part < 1:
            with self._lock:
                self._part = min(1.0, 2 * self._part)

    def smaller_batches(self, refused: int) -> bool:
        """A batch of up to so many bytes was refused; False: none can be smaller."""
        with self._lock:
            if self.batch >= refused:  # else somebody else has learnt it meanwhile
                smaller = [size for size in _BATCHES if size < refused]
                if not smaller:
                    return False
                self.batch = smaller[0]
            return True


_rooms: Final[dict[tuple[str, int], Room]] = {}


def room_of(servers: str) -> Room:
    """The one of this process for a cluster."""
    return _rooms.setdefault((servers, os.getpid()), Room())
