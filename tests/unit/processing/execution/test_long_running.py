"""Handlers that take long are found, whichever way their records go, and said with their place."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from redrive import App
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor, executor_for
from redrive.processing.execution.long_running import LongRunning
from redrive.processing.execution.resources import Resources
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import LONG_RUNNING


class Held:
    """A handler that holds the record `hold` until it is let go."""

    def __init__(self):
        self.begun = threading.Event()
        self.over = threading.Event()

    def plain(self, record, ctx):
        if record.value == b"hold":
            self.begun.set()
            assert self.over.wait(30)

    def batch(self, records, ctx):
        for record in records:
            self.plain(record, ctx)

    async def on_the_loop(self, record, ctx):
        if record.value == b"hold":
            self.begun.set()
            await asyncio.to_thread(self.over.wait, 30)


class World:
    def __init__(self, app):
        self.clock = VirtualClock()
        self.scope = Scope(app, {}, clock=self.clock)
        self.processor = PartitionProcessor(self.scope, TopicPartition("orders", 0), tracker())
        self.dispatcher = Dispatcher(self.clock, app.concurrency, self.settle)
        self.now = 0.0
        self.long = LongRunning(self.dispatcher, lambda: self.now)

    def settle(self, processor, report):
        processor.settle(report.offsets)

    def offer(self, *values):
        self.dispatcher.offer(self.processor, records(*values))


def tracker():
    return AckTracker()


def records(*values):
    return [Record("orders", 0, n, b"%d" % n, value) for n, value in enumerate(values)]


@pytest.fixture
def held():
    held = Held()
    yield held
    held.over.set()


@pytest.mark.parametrize(
    ("function", "ordering", "batch"),
    [
        ("plain", "key", None),
        ("plain", "unordered", None),
        ("batch", "key", 10),
        ("on_the_loop", "key", None),
    ],
)
def test_the_oldest_handler_is_known_whichever_way_its_record_went(
    held, function, ordering, batch, caplog
):
    app = App("shop", ordering=ordering, concurrency=4)
    app.handler("orders", batch=batch)(getattr(held, function))
    world = World(app)
    executor = executor_for(app, world.scope, Resources(app))
    executor.start(world.dispatcher)
    world.dispatcher.add(world.processor)
    assert world.dispatcher.oldest() is None
    world.offer(b"hold")
    assert held.begun.wait(30)
    oldest = world.dispatcher.oldest()
    assert oldest.current.place == "orders[0]@0"
    world.now = oldest.since + LONG_RUNNING - 2
    world.long.look()
    assert not caplog.records
    world.now = oldest.since + LONG_RUNNING
    world.long.look()
    world.long.look()
    (line,) = caplog.records
    assert "has been running for 30 s for orders[0]@0" in line.getMessage()
    assert (line.app, line.offset) == ("shop", 0)
    if function != "on_the_loop":
        _, first, *_ = line.getMessage().splitlines()
        assert first.endswith(f"in {function}"), "from where the user's code begins"
        assert "self.over.wait(30)" in line.getMessage(), "to where it stands"
    world.now += 2 * LONG_RUNNING
    world.long.look()
    assert len(caplog.records) == 2, "and again after twice as long"
    held.over.set()
    executor.close()
    world.dispatcher.tick()
    assert world.dispatcher.oldest() is None
    assert world.long.seconds() == 0


def test_it_is_known_of_records_that_run_in_the_callers_own_thread():
    seen = []
    app = App("shop")
    app.handler("orders")(lambda record, ctx: seen.append(world.dispatcher.oldest()))
    world = World(app)
    executor = InlineExecutor(world.scope, Resources(app))
    executor.start(world.dispatcher)
    world.dispatcher.add(world.processor)
    world.offer(b"a", b"b")
    executor.run()
    assert [lot.thread for lot in seen] == [threading.get_ident()] * 2
    assert world.dispatcher.oldest() is None
    executor.close()


def test_one_that_will_be_ended_in_time_is_not_spoken_of(held, caplog):
    app = App("shop", concurrency=2)
    app.handler("orders", timeout="10m")(held.plain)
    world = World(app)
    executor = executor_for(app, world.scope, Resources(app))
    executor.start(world.dispatcher)
    world.dispatcher.add(world.processor)
    world.offer(b"hold")
    assert held.begun.wait(30)
    world.now = world.dispatcher.oldest().since + 100
    world.long.look()
    assert not caplog.records
    assert world.long.seconds() == pytest.approx(100)
    held.over.set()
    executor.close()


def test_it_is_looked_for_in_a_thread_of_its_own_where_nobody_else_can(held, caplog, monkeypatch):
    monkeypatch.setattr("redrive.processing.execution.long_running.LONG_RUNNING_EVERY", 0.001)
    monkeypatch.setattr("redrive.processing.execution.long_running.LONG_RUNNING", 0.0)
    app = App("shop")
    app.handler("orders")(held.plain)
    world = World(app)
    executor = InlineExecutor(world.scope, Resources(app))
    executor.start(world.dispatcher)
    world.dispatcher.add(world.processor)
    world.offer(b"hold")
    said = threading.Thread(target=lambda: (held.begun.wait(30), wait_for(caplog), held.over.set()))
    said.start()
    with LongRunning(world.dispatcher, time.monotonic).watched():
        executor.run()
    said.join()
    assert "has been running for" in caplog.text
    executor.close()


def wait_for(caplog):
    while "has been running for" not in caplog.text:
        threading.Event().wait(0.001)
