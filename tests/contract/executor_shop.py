"""A shop on any executor: an app and one partition, without an engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import monotonic

from redrive import App, Context, Record
from redrive.choices import Ordering
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import (
    AsyncExecutor,
    Executor,
    InlineExecutor,
    ThreadExecutor,
)
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.report import Outcome, Report, Sent
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import TopicPartition
from redrive.testing import VirtualClock
from redrive.threads import OnDeath

Form = str
FORMS = ["inline", "threads", "async"]


class Shop:
    """An app, an executor and one partition; `run` offers records and waits for their end."""

    def __init__(self, form: Form, app: App, on_death: OnDeath | None = None) -> None:
        self.scope = Scope(app, {})
        if on_death is not None:
            self.scope.on_death = on_death
        resources = Resources(app)
        self.executor: Executor = {
            "inline": lambda: InlineExecutor(self.scope, resources),
            "threads": lambda: ThreadExecutor(self.scope, resources, app.concurrency),
            "async": lambda: AsyncExecutor(self.scope, resources, app.concurrency),
        }[form]()
        self.tracker = AckTracker()
        self.outcomes: list[Outcome] = []
        self.sent: list[Sent] = []
        self.all_settled = threading.Condition()
        self.dispatcher = Dispatcher(VirtualClock(), app.concurrency, self.settle)
        self.processor = PartitionProcessor(self.scope, TopicPartition("t", 0), self.tracker)
        self.dispatcher.add(self.processor)
        self.executor.start(self.dispatcher)

    def settle(self, processor: PartitionProcessor, report: Report) -> None:
        self.outcomes += report.outcomes
        processor.settle(report.offsets)
        self.sent += report.sent
        with self.all_settled:
            self.all_settled.notify_all()

    def run(self, records: list[Record]) -> None:
        self.dispatcher.offer(self.processor, records)
        until = monotonic() + 60
        while self.tracker.in_flight and monotonic() < until:
            self.dispatcher.tick()
            if isinstance(self.executor, InlineExecutor):
                self.executor.run()
            with self.all_settled:
                self.all_settled.wait_for(lambda: not self.tracker.in_flight, timeout=0.01)
        assert not self.tracker.in_flight


def records(count: int, keys: int = 10) -> list[Record]:
    return [Record("t", 0, n, str(n % keys).encode(), b"v") for n in range(count)]


def app_with(
    form: Form, call: Callable[[Record, Context], None], ordering: Ordering = "key"
) -> App:
    """An app whose handler calls the function: as a coroutine where the form is async."""
    app = App("shop", ordering=ordering, concurrency=8)

    async def call_async(record: Record, ctx: Context) -> None:
        await asyncio.sleep(0)
        call(record, ctx)

    app.handler("t")(call_async if form == "async" else call)
    return app
