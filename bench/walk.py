"""One record's way, function by function: what an engine calls for a record, and not when idle.

    PYTHONPATH=tests:tests/engines .venv/bin/python bench/walk.py

Counted are distinct functions of redrive, in all threads, in the order in which they are first
called. The record is fresh, its handler a plain function that returns. All parts are real but the
Kafka client. What is called for a gap in the offsets as well, such as the commit, does not count.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from memory_engine import MiniSpark
from worker_bench import Bench, Message, end_of_partition

import redrive
from redrive import App
from redrive.engines.spark.ranges import Range
from redrive.engines.worker.delivery_thread import FlushThread
from redrive.processing.execution.executors import ThreadExecutor
from redrive.processing.execution.resources import Resources
from redrive.record import TopicPartition
from redrive.testing.memory_broker import MemoryBroker

SOURCE = str(Path(redrive.__file__).parent)
PATIENCE = 60
LIMITS = {"worker": (35, 15), "spark": (30, 14)}


class Calls:
    """Notes which functions of redrive are called, in the order of their first calls."""

    def __init__(self) -> None:
        self.seen: dict[CodeType, None] = {}

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """What Python calls at each call of a function."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name[0] != "<":
            self.seen.setdefault(code)

    def during(self, run: Callable[[], None]) -> dict[CodeType, None]:
        """The functions that are called meanwhile, here and in threads that are watched."""
        self.seen = {}
        sys.setprofile(self.note)
        try:
            run()
        finally:
            sys.setprofile(None)
        return self.seen


def app() -> App:
    """An app as most are: in key order, with a plain function."""
    made = App("walk", ordering="key", concurrency=1)

    @made.handler("t")
    def handle(record: Any, ctx: Any) -> None:
        """Do nothing."""

    return made


def worker() -> list[CodeType]:
    """The way on the worker: its poll loop, a thread that runs handlers, its delivery."""
    calls = Calls()
    bench = Bench(app())
    bench.close()
    bench.scope.times = bench.counting.handling
    bench.scope.timer = lambda: 0.0  # handlers take no time, however busy the machine is
    broker = MemoryBroker(bench.clock)
    bench.delivering = FlushThread(broker, bench.clock, bench.counting, _die)  # type: ignore[assignment]  # -- the real one
    executor = ThreadExecutor(bench.scope, Resources(bench.scope.app), 1)
    threading.setprofile(calls.note)
    try:
        executor.start(bench.dispatcher)
        bench.step(run=False)
    finally:
        threading.setprofile(None)
    asleep = dict(calls.seen)

    def a_gap(offset: int) -> None:
        """Nothing to handle, but something to commit."""
        bench.step(end_of_partition(offset + 1), run=False)
        bench.step(run=False)

    def a_record(offset: int) -> None:
        bench.step(Message(offset), run=False)
        changed = bench.dispatcher.changed
        with changed:
            changed.wait_for(lambda: not bench.partition.tracker.in_flight, PATIENCE)
        bench.step(run=False)

    a_record(0)  # some things happen once
    before = calls.during(lambda: a_gap(1))
    after = calls.during(lambda: a_record(2))
    executor.close()
    bench.delivering.close(1)
    return [code for code in after if code not in before and code not in asleep]


def spark() -> list[CodeType]:
    """The way on Spark: a task with one range, from its first read to its last commit."""
    calls = Calls()
    mini = MiniSpark(app())
    mini.broker.gap(TopicPartition("t", 0), 1)
    mini.send("t", b"1")
    before = calls.during(lambda: _run(mini, 0))
    after = calls.during(lambda: _run(mini, 1))
    return [code for code in after if code not in before]


def _run(mini: MiniSpark, start: int) -> None:
    mini.run_task([Range("t", 0, start, start + 1)])


def _die(error: BaseException) -> None:
    raise error


def names(found: list[CodeType]) -> list[str]:
    """The module and the name of each."""
    return [f"{_module(code):35} {code.co_qualname}" for code in found]


def _module(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(SOURCE).as_posix()


def main() -> None:
    """Print both ways; fail if one of them is longer than it should be."""
    missed = False
    for engine, walk in (("worker", worker), ("spark", spark)):
        found = walk()
        modules = len(set(map(_module, found)))
        functions, most_modules = LIMITS[engine]
        missed |= len(found) >= functions or modules >= most_modules
        print(f"{engine}: {len(found)} functions (fewer than {functions}),", end=" ")
        print(f"{modules} modules (fewer than {most_modules})")
        for name in names(found):
            print(f"  {name}")
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
