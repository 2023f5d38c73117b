"""Weights: how many bytes of a partition's records are in flight.

Counted from the first record that is not complete, lot by lot: at most so many, and never less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from redrive.record import Headers, Record

MAX_BYTES_IN_FLIGHT: Final = 64 * 1024 * 1024
"""Of one partition on the worker, of all ranges of a task on Spark."""
RECORD: Final = 400
"""Bytes that a record takes besides its key, value and headers. So small ones have a weight too:
while one is not complete, what is complete behind it is remembered one by one."""
_key: Final = itemgetter(3)
_value: Final = itemgetter(4)
_headers: Final = itemgetter(5)


def weight(records: Sequence[Record]) -> int:
    """The bytes that records take."""
    size = RECORD * len(records)
    size += sum(map(len, filter(None, map(_key, records))))
    size += sum(map(len, filter(None, map(_value, records))))
    return size + sum(map(_weight, filter(None, map(_headers, records))))


def _weight(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


class Weights:
    """The lots of one partition that were received."""

    def __init__(self) -> None:
        self._lots: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def add(self, records: Sequence[Record]) -> None:
        """Take note of a lot."""
        size = weight(records)
        self._lots.append((records[-1].offset, size))
        self._bytes += size

    def went_back(self, offset: int) -> None:
        """Take note that everything from there on is read again."""
        lots = self._lots
        while lots and lots[-1][0] >= offset:
            self._bytes -= lots.pop()[1]

    def from_offset(self, prefix: int) -> int:
        """The bytes from there on; everything before is complete."""
        lots = self._lots
        while lots and lots[0][0] < prefix:
            self._bytes -= lots.popleft()[1]
        return self._bytes
