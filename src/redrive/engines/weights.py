"""Weights: how many bytes of a partition's records are in flight.

Counted from the first incomplete record, batch by batch: an upper bound, never too little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from redrive.record import Record, payload

RECORD: Final = 400
"""Bytes that a record takes besides its key, value and headers. So small records have a weight too:
while one is incomplete, the complete ones behind it are remembered one by one."""
_KEY: Final = Record._fields.index("key")


def weight(records: Sequence[Record]) -> int:
    """The bytes that records take."""
    return RECORD * len(records) + payload(records, _KEY)


class Weights:
    """The batches received from one partition."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def add(self, records: Sequence[Record]) -> None:
        """Add a batch."""
        size = weight(records)
        self._batches.append((records[-1].offset, size))
        self._bytes += size

    def went_back(self, offset: int) -> None:
        """Forget everything from that offset on: it will be read again."""
        batches = self._batches
        while batches and batches[-1][0] >= offset:
            self._bytes -= batches.pop()[1]

    def from_offset(self, prefix: int) -> int:
        """The bytes from that offset on; everything before it is complete."""
        batches = self._batches
        while batches and batches[0][0] < prefix:
            self._bytes -= batches.popleft()[1]
        return self._bytes
