"""What redrive itself costs per record: a no-op handler through processor and tracker.

Key order, inline, records without headers; against a bare loop that calls the same handler. Both
are measured in one run, several times by turns, in CPU time, and the best of each counts.
"""

from __future__ import annotations

import gc
import random
from time import thread_time

from redrive import App, Context, Record
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import TopicPartition

RECORDS = 100_000
CHUNK = 1_000
ROUNDS = 7
LIMIT_MICROSECONDS = 4.0


class Stopped:
    """A clock that need not be asked: the time is not what is measured."""

    def now(self) -> int:
        return 0

    def was_set(self) -> int:
        return 0


def handler(record: Record, ctx: Context) -> None:
    """Do nothing."""


def records() -> list[Record]:
    chance = random.Random(7)
    keys = [f"key-{chance.paretovariate(1):.0f}".encode() for _ in range(RECORDS)]
    return [Record("orders", 0, offset, key, b"x" * 100) for offset, key in enumerate(keys)]


def bare(batch: list[Record]) -> None:
    for record in batch:
        handler(record, None)  # type: ignore[arg-type]  # -- the bare loop has no context to give


def redriven(batch: list[Record]) -> None:
    app = App("bench", ordering="key")
    app.handler("orders")(handler)
    scope = Scope(app, {})
    tracker = AckTracker()

    def settle(processor: PartitionProcessor, report: Report) -> None:
        processor.settle(report.done)

    dispatcher = Dispatcher(Stopped(), 1, settle)
    processor = PartitionProcessor(scope, TopicPartition("orders", 0), tracker)
    dispatcher.add(processor)
    executor = InlineExecutor(scope, Resources(app))
    executor.start(dispatcher)
    for start in range(0, len(batch), CHUNK):
        dispatcher.offer(processor, batch[start : start + CHUNK])
        executor.run()
        tracker.position()
    executor.close()
    position = tracker.position()
    assert position is not None
    assert position.offset == len(batch), position


def seconds(run: object, batch: list[Record]) -> float:
    gc.collect()
    start = thread_time()
    run(batch)  # type: ignore[operator]  # -- one of the two above
    return thread_time() - start


def main() -> None:
    batch = records()
    bests = {"bare": 1e9, "redrive": 1e9}
    for _ in range(ROUNDS):
        bests["bare"] = min(bests["bare"], seconds(bare, batch))
        bests["redrive"] = min(bests["redrive"], seconds(redriven, batch))
    bare_cost, cost = (bests[name] / RECORDS * 1e6 for name in ("bare", "redrive"))
    print(f"{RECORDS} records, key order, inline, best of {ROUNDS}")
    print(f"bare loop   {bare_cost:6.3f} µs per record")
    print(f"redrive     {cost:6.3f} µs per record   ratio {cost / bare_cost:.1f}")
    kept = "kept" if cost <= LIMIT_MICROSECONDS else "MISSED"
    print(f"limit       {LIMIT_MICROSECONDS:6.3f} µs per record   {kept}")
    if cost > LIMIT_MICROSECONDS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
