"""The measurements; each runs in a process of its own, and gives figures."""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from confluent_kafka import Consumer, Producer

from redrive import App, Guard, Retry, RetryPolicy
from redrive.worker import Options, Worker, start


class Clock:
    """From the first handler's start to the last one's end."""

    def __init__(self, expected: int) -> None:
        self.first = 0.0
        self.last = 0.0
        self.all_ended = threading.Event()
        self._expected = expected
        self._ended = itertools.count(1)

    def begins(self) -> None:
        if not self.first:
            self.first = time.perf_counter()

    def ended(self) -> None:
        # By a counter, not a lock: a hundred threads that wait for the lock of whoever measures
        # them would be measured with it.
        if next(self._ended) == self._expected:
            self.last = time.perf_counter()
            self.all_ended.set()

    def note(self, *, first: bool) -> None:
        """The first or the last of them, for handlers that count by themselves."""
        if first:
            self.first = time.perf_counter()
        else:
            self.last = time.perf_counter()
            self.all_ended.set()

    @property
    def seconds(self) -> float:
        return self.last - self.first


def begin(app: App, bootstrap: str, *, one_core: bool = False) -> Worker:
    """Run an app in this process."""
    module = ModuleType("bench_app")
    module.app = app  # type: ignore[attr-defined]  # -- as a user's module has one
    sys.modules["bench_app"] = module
    # A new app: those measured before read the same topic.
    options = Options(one_core=one_core, new_app=True)
    return start("bench_app:app", options=options, bootstrap=bootstrap)


def run(
    app: App, bootstrap: str, over: Callable[[float], bool], *, one_core: bool = False
) -> Worker:
    """Run an app in this process until it is over."""
    worker = begin(app, bootstrap, one_core=one_core)
    while not over(0.2):
        worker.check()
    worker.stop()
    worker.check()
    return worker


def run_until_done(app: App, bootstrap: str, count: int) -> Worker:
    """Run an app in this process until so many records are done."""
    worker = begin(app, bootstrap)
    while worker.figures.total("done") < count:
        worker.await_termination(0.1)
    worker.stop()
    worker.check()
    return worker


def sleeping(
    *,
    bootstrap: str,
    name: str,
    topic: str,
    count: int,
    ordering: str,
    form: str,
    concurrency: int,
    one_core: bool,
) -> dict[str, float]:
    """Handlers that wait as long as their record says."""
    clock = Clock(count)
    app = App(name, ordering=ordering, concurrency=concurrency)  # type: ignore[arg-type]  # -- a word

    if form == "async":

        @app.handler(topic)
        async def handle_async(record: Any, _: Any) -> None:
            clock.begins()
            await asyncio.sleep(int(record.value) / 1e6)
            clock.ended()

    else:

        @app.handler(topic)
        def handle(record: Any, _: Any) -> None:
            clock.begins()
            time.sleep(int(record.value) / 1e6)
            clock.ended()

    run(app, bootstrap, clock.all_ended.wait, one_core=one_core)
    return {"seconds": clock.seconds}


def bare_sleeping(waits: list[int], concurrency: int) -> dict[str, float]:
    """The same by nothing but Python's threads: what they make of it without Kafka and redrive."""
    clock, left = Clock(len(waits)), iter(waits)

    def work() -> None:
        while (wait := next(left, None)) is not None:
            clock.begins()
            time.sleep(wait / 1e6)  # the work that is measured
            clock.ended()

    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    clock.all_ended.wait()
    return {"seconds": clock.seconds}


def noop(
    *,
    bootstrap: str,
    name: str,
    topic: str,
    count: int,
    concurrency: int,
    ordering: str = "key",
    guarded: bool = False,
) -> dict[str, float]:
    """Handlers that do nothing, in key order."""
    clock = Clock(count)
    guard = Guard() if guarded else None
    app = App(name, ordering=ordering, concurrency=concurrency, guard=guard)  # type: ignore[arg-type]  # -- a word

    called, ends = itertools.count(1), {1, count}

    @app.handler(topic)
    def handle(_: Any, __: Any) -> None:
        number = next(called)
        if number in ends:
            clock.note(first=number == 1)

    run(app, bootstrap, clock.all_ended.wait)
    return {"seconds": clock.seconds, "cpu": _cpu()}


def bare_noop(bootstrap: str, name: str, topic: str, count: int) -> dict[str, float]:
    """The same by a loop around a consumer, message by message."""
    consumer = _bare_consumer(bootstrap, name)
    consumer.subscribe([topic])
    seen, began = 0, 0.0
    while seen < count:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        seen += 1
        if seen == 1:
            began = time.perf_counter()
    seconds = time.perf_counter() - began
    consumer.commit(asynchronous=False)
    consumer.close()
    return {"seconds": seconds, "cpu": _cpu()}


def copy(
    *, bootstrap: str, name: str, topic: str, out: str, count: int, concurrency: int
) -> dict[str, float]:
    """From topic to topic."""
    app = App(name, ordering="key", concurrency=concurrency)

    @app.handler(topic)
    def handle(record: Any, ctx: Any) -> None:
        ctx.send(out, record.value, key=record.key)

    worker = run_until_done(app, bootstrap, count)
    return {"cpu": _cpu(), "done": float(worker.figures.total("done"))}


def bare_copy(bootstrap: str, name: str, topic: str, out: str, count: int) -> dict[str, float]:
    """From topic to topic by a loop around a consumer and a producer."""
    consumer = _bare_consumer(bootstrap, name)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    consumer.subscribe([topic])
    seen = 0
    refused: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    while seen < count:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        producer.produce(out, message.value(), message.key(), on_delivery=on_delivery)
        seen += 1
        if seen % 1000 == 0:
            producer.poll(0)
        if seen % 20_000 == 0:
            producer.flush()
            consumer.commit(asynchronous=False)
    producer.flush()
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    if refused:
        raise SystemExit(f"{len(refused)} writes were refused")
    return {"cpu": _cpu()}


def retrying(
    *, bootstrap: str, name: str, topic: str, out: str, delays: str, count: int, concurrency: int
) -> dict[str, float]:
    """Records that say how often they fail."""
    app = App(name, ordering="key", concurrency=concurrency, retry=RetryPolicy(delays))

    @app.handler(topic)
    def handle(record: Any, ctx: Any) -> None:
        if ctx.attempt <= int(record.value):
            raise Retry("not yet")
        ctx.send(out, record.value, key=record.key, headers={"sent": str(record.timestamp)})

    worker = run_until_done(app, bootstrap, count)
    worker.figures.late([])
    late = sorted(worker.figures.lateness)
    return {
        "p50": late[len(late) // 2] if late else 0.0,
        "p99": late[int(len(late) * 0.99)] if late else 0.0,
        "early": float(worker.figures.early),
    }


def memory(bootstrap: str, name: str, topic: str, seconds: float) -> dict[str, float]:
    """A handler that is slower than the topic: what the process takes after some seconds."""
    app = App(name, ordering="key", concurrency=4)
    over = threading.Event()

    @app.handler(topic)
    def handle(_: Any, __: Any) -> None:
        time.sleep(0.005)

    worker = begin(app, bootstrap)
    samples: list[int] = []
    while len(samples) < seconds:
        over.wait(1.0)
        worker.check()
        samples.append(_resident())
    worker.stop()
    third = max(1, len(samples) // 3)
    return {
        "early": sum(samples[third : 2 * third]) / third / 1e6,
        "late": sum(samples[-third:]) / third / 1e6,
        "most": max(samples) / 1e6,
    }


def failing(
    *,
    bootstrap: str,
    name: str,
    topic: str,
    count: int,
    ordering: str,
    delay: str,
    until: str,
) -> dict[str, float]:
    """Records that say how often they fail, until so many are done, or parked."""
    app = App(name, ordering=ordering, concurrency=16, retry=RetryPolicy(delay))  # type: ignore[arg-type]  # -- a word

    @app.handler(topic)
    def handle(record: Any, ctx: Any) -> None:
        if ctx.attempt <= int(record.value):
            raise Retry("not yet")

    began = time.perf_counter()
    worker = begin(app, bootstrap)
    while worker.figures.total(until) < count:
        worker.await_termination(0.01)
    seconds = time.perf_counter() - began
    worker.stop()
    worker.check()
    return {"seconds": seconds, "cpu": _cpu()}


def _bare_consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
