"""What a scan over dead letters costs: `redrive dead groups`, without the time that Kafka takes.

Letters of five causes come from a log that makes them up as they are read, so that only redrive is
measured: CPU time per letter, and how far memory grows between the first tenth and the end.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from time import process_time

from redrive.dead import DeadLetters
from redrive.envelope import Envelope
from redrive.fingerprint import Fingerprint
from redrive.record import Record, TopicPartition

LETTERS = 1_000_000
BATCH = 1000
LIMIT_MEGABYTES = 20
CAUSES = ("KeyError", "ValueError", "OSError", "shop.NoPrice", "redrive.signals.Bury")


class MadeUp:
    """A log of one partition whose records exist only while they are read."""

    def __init__(self, letters: int) -> None:
        self._letters = letters
        self.memory: list[int] = []

    def partitions(self, topic: str) -> int:
        return 0 if topic.endswith(".state") else 1

    def topic_id(self, topic: str) -> str:
        return topic

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return 0, self._letters

    def batches(self, partition: TopicPartition, start: int, end: int) -> Iterator[list[Record]]:
        for first in range(start, end, BATCH):
            yield [letter(offset) for offset in range(first, min(first + BATCH, end))]
            if first % (self._letters // 10) == 0:
                self.memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def letter(offset: int) -> Record:
    """A letter of one of five causes."""
    error = CAUSES[offset % len(CAUSES)]
    envelope = Envelope(
        app="shop",
        id=str(offset),
        origin_topic="orders",
        origin_partition=0,
        origin_offset=offset,
        first_received=1,
        error_type=error,
        error_message=f"order {offset} has no price",
        error_group=Fingerprint("exhausted", error).id,
        dead_reason="exhausted",
    )
    return Record("shop.dead", 0, offset, b"key", b"value", envelope.headers(()), offset)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else LETTERS
    log = MadeUp(count)
    began = process_time()
    for _ in log.batches(TopicPartition("shop.dead", 0), 0, count):
        pass
    making = process_time() - began
    log.memory.clear()
    began = process_time()
    groups, scanned = DeadLetters(log, topic="shop.dead").groups()
    spent = process_time() - began - making
    grown = log.memory[-1] - log.memory[1]
    assert (len(groups), scanned.scanned, scanned.complete) == (len(CAUSES), count, True)
    print(f"groups of {count:,} letters: {spent / count * 1e6:.1f} us CPU per letter")
    print(f"memory: {log.memory[-1]} MB at most, {grown} MB more than after a tenth of them")
    if grown > LIMIT_MEGABYTES:
        raise SystemExit(f"memory grows with the letters: by {grown} MB")


if __name__ == "__main__":
    main()
