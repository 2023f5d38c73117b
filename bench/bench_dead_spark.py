"""Groups of many dead letters, by this process and by Spark, on the same Kafka and in one run.

`bench/bench_dead_spark.py 1000000` says how many letters. Both give the same answer, or it fails;
and it fails if the memory of this process grows with the letters that it reads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import psutil
from bench_dead import CAUSES, LETTERS, letter
from spark.world import World, world

from redrive.dead import open_letters
from redrive.engines.spark.dead.letters import SparkLetters
from redrive.record import Write

AT_ONCE = 20_000
PARTITIONS = 8
TOPIC = "shop.dead"
LIMIT_MEGABYTES = 50
"""How far this process may grow after a tenth of the time: a million letters would be gigabytes."""


class Peak(threading.Thread):
    """Looks at the memory of this process and of Spark's, five times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()
        self.spark = 0
        self._own = [_resident(psutil.Process())]

    @property
    def own(self) -> int:
        """What this process had at most."""
        return max(self._own)

    @property
    def grown(self) -> int:
        """How much more that is than it had at most in the first tenth of the time."""
        return self.own - max(self._own[: max(1, len(self._own) // 10)])

    def run(self) -> None:
        while not self._end.wait(0.2):
            self._own.append(_resident(psutil.Process()))
            others = psutil.Process().children(recursive=True)
            of_spark = [each for each in others if _is_sparks(each)]
            self.spark = max(self.spark, sum(map(_resident, of_spark)))

    def stop(self) -> None:
        self._end.set()
        self.join()


def _is_sparks(process: psutil.Process) -> bool:
    try:
        return any("spark" in each for each in process.cmdline())
    except psutil.Error:
        return False


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss) // 2**20
    except psutil.Error:
        return 0


def measured(name: str, count: int, ask: Callable[[], Any]) -> tuple[Any, Peak]:
    """What it answers, and its memory; that, and how long it took, is printed."""
    peak = Peak()
    peak.start()
    began = monotonic()
    answer = ask()
    seconds = monotonic() - began
    peak.stop()
    print(
        f"  {name:12} {seconds:7.1f} s, {count / seconds:9,.0f} letters/s,"
        f" {peak.own:5} MB in this process, {peak.spark:5} MB in those of Spark"
    )
    return answer, peak


def bury(running: World, count: int) -> None:
    """Write letters of five causes to a dead topic."""
    running.topic(TOPIC, PARTITIONS)
    for first in range(0, count, AT_ONCE):
        made = map(letter, range(first, min(first + AT_ONCE, count)))
        running.publisher.publish(
            [
                Write(TOPIC, each.key, each.value, each.headers, each.offset % PARTITIONS)
                for each in made
            ]
        )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else LETTERS
    with world() as running:
        bury(running, count)
        letters = open_letters(None, running.settings, topic=TOPIC)
        on_spark = SparkLetters(running.spark, letters, running.settings)
        print(f"groups of {count:,} letters in {PARTITIONS} partitions")
        (here, scanned), peak = measured("local", count, letters.groups)
        measured("spark, cold", count, on_spark.groups)
        (there, also), _ = measured("spark, warm", count, on_spark.groups)
    assert (len(here), scanned.scanned, scanned.complete) == (len(CAUSES), count, True)
    assert [each.as_data() for each in here] == [each.as_data() for each in there]
    assert scanned.as_data() == also.as_data()
    print(f"memory of the local scan: {peak.grown} MB more than in the first tenth of the time")
    if peak.grown > LIMIT_MEGABYTES:
        raise SystemExit(f"memory grows with the letters: by {peak.grown} MB")


if __name__ == "__main__":
    main()
