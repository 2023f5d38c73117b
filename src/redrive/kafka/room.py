"""Room: how much fits into one transaction, as learnt by the producers of a process.

A transaction that is not committed within its time-out is aborted by the broker, and a batch that
is larger than its topic's max.message.bytes is refused as a whole. Without this, the same
transaction would fail in the same way forever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from threading import Lock
from typing import Final

from redrive.messages import weight
from redrive.record import Write
from redrive.tuning import TRANSACTION_BYTES, TRANSACTION_QUICK, TRANSACTION_WRITES

_BATCHES: Final = (1_000_000, 100_000, 10_000, 1_000, 1)
"""Bytes of one batch: librdkafka's default, and what is tried after one was refused. A batch has
one message at least, so that the last of them is a message alone."""


class Room:
    """Shared by all transactional producers of a process. Thread-safe."""

    def __init__(self) -> None:
        self.batch = _BATCHES[0]
        """The most bytes of one batch."""
        self._part = 1.0
        self._lock = Lock()

    @property
    def writes(self) -> int:
        """The most messages of one transaction."""
        return max(1, int(self._part * TRANSACTION_WRITES))

    @property
    def bytes(self) -> int:
        """The most bytes of its messages."""
        return max(1, int(self._part * TRANSACTION_BYTES))

    def takes(self, messages: int, size: int) -> bool:
        """Whether that many messages and bytes fit into one transaction."""
        return messages <= self.writes and size <= self.bytes

    def fitting(self, whose: Sequence[Sequence[Write]], at_most: float = inf) -> int:
        """How many records fit into one transaction, given the writes of each: at least one.

        `at_most` is an upper bound of the bytes of all, if known.
        """
        if sum(map(len, whose)) <= self.writes:
            known = at_most <= self.bytes  # as nearly always
            if known or weight(list(chain.from_iterable(whose))) <= self.bytes:
                return len(whose)
        messages = size = 0
        for number, each in enumerate(whose):
            messages += len(each)
            size += weight(each)
            if number and not self.takes(messages, size):
                return number
        return len(whose)

    def was_late(self) -> None:
        """A transaction was not committed in time: make the next ones smaller."""
        with self._lock:
            self._part = max(self._part / 2, 1 / TRANSACTION_WRITES)

    def was_in_time(self, writes: Sequence[Write], share: float) -> None:
        """One was committed, and used that fraction of its time: if it was quick, let them grow.

        One that was not full says nothing about full ones.
        """
        if self._part == 1 or share > TRANSACTION_QUICK:
            return
        if not self.takes(2 * len(writes), 2 * weight(writes)):
            with self._lock:
                self._part = min(1.0, 2 * self._part)

    def smaller_batches(self, refused: int) -> bool:
        """A batch of up to that many bytes was refused; False: it cannot get any smaller."""
        with self._lock:
            if self.batch >= refused:  # else another thread has learnt it meanwhile
                smaller = [size for size in _BATCHES if size < refused]
                if not smaller:
                    return False
                self.batch = smaller[0]
            return True


_rooms: Final[dict[tuple[str, int], Room]] = {}


def room_of(servers: str) -> Room:
    """This process's room for a cluster."""
    return _rooms.setdefault((servers, os.getpid()), Room())


def parts(writes: Iterable[Write], most: int) -> Iterator[list[Write]]:
    """The writes in order, in parts of at most that many bytes, or of a single write."""
    part: list[Write] = []
    size = 0
    for write in writes:
        size += weight([write])
        if part and size > most:
            yield part
            part, size = [], weight([write])
        part.append(write)
    if part:
        yield part
