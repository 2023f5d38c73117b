"""One contract for all executors: inline, threads, event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from executor_shop import FORMS, Form, Shop, app_with, records

from redrive import App, Context, Record
from redrive.processing.calls.scope import Scope
from redrive.processing.execution import event_loop
from redrive.processing.execution.executors import AsyncExecutor, ThreadExecutor, executor_for
from redrive.processing.execution.resources import Resources


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return str(request.param)


@pytest.fixture
def shop(form: Form) -> Iterator[Callable[[App], Shop]]:
    opened: list[Shop] = []

    def open_shop(app: App) -> Shop:
        opened.append(Shop(form, app))
        return opened[-1]

    yield open_shop
    for each in opened:
        each.executor.close()


def test_every_record_is_handled_once_and_keys_in_order(
    form: Form, shop: Callable[[App], Shop]
) -> None:
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    running: set[bytes | None] = set()

    def handle(record: Record, ctx: Context) -> None:
        assert record.key not in running
        running.add(record.key)
        seen[record.key].append(record.offset)
        running.discard(record.key)

    opened = shop(app_with(form, handle))
    opened.run(records(5_000))
    assert opened.outcomes == []
    assert sum(map(len, seen.values())) == 5_000
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    position = opened.tracker.position()
    assert position is not None
    assert position.offset == 5_000


def test_whatever_a_handler_raises_ends_with_its_record(
    form: Form, shop: Callable[[App], Shop]
) -> None:
    errors: list[BaseException] = [
        ValueError("no"),
        SystemExit(1),
        asyncio.CancelledError(),
        StopIteration(),
        GeneratorExit(),
    ]

    def handle(record: Record, ctx: Context) -> None:
        if record.offset % 2:
            raise errors[record.offset // 2 % len(errors)]

    opened = shop(app_with(form, handle))
    opened.run(records(20))
    assert sorted(outcome.offset for outcome in opened.outcomes) == list(range(1, 20, 2))
    assert {outcome.kind for outcome in opened.outcomes} == {"bury"}


def test_sends_of_records_that_are_done_come_out(form: Form, shop: Callable[[App], Shop]) -> None:
    def handle(record: Record, ctx: Context) -> None:
        ctx.send("out", record.value, key=record.key)

    opened = shop(app_with(form, handle))
    opened.run(records(100))
    writes = [write for _, sends, _ in opened.sent for write in sends]
    assert len(writes) == 100
    assert {write.topic for write in writes} == {"out"}


@pytest.mark.parametrize("concurrency", [8, 400])
@pytest.mark.parametrize("threaded", ["threads", "async"])
def test_as_many_records_run_at_once_as_the_concurrency_says(
    threaded: Form, concurrency: int
) -> None:
    together = threading.Barrier(concurrency, timeout=60)
    meeting: set[int] = set()

    def handle(record: Record, ctx: Context) -> None:
        together.wait()

    app = App("shop", ordering="unordered", concurrency=concurrency)
    if threaded == "threads":
        app.handler("t")(handle)
    else:
        everyone: list[asyncio.Event] = []

        async def handle_async(record: Record, ctx: Context) -> None:
            if not everyone:
                everyone.append(asyncio.Event())
            meeting.add(record.offset)
            if len(meeting) == concurrency:
                everyone[0].set()
            await everyone[0].wait()

        app.handler("t")(handle_async)
    opened = Shop(threaded, app)
    opened.run(records(concurrency))
    opened.executor.close()
    assert opened.outcomes == []


def test_a_sync_handler_beside_async_ones_runs_on_a_thread() -> None:
    app = App("shop", concurrency=2)
    threads: list[str] = []
    app.handler("t")(lambda record, ctx: threads.append(threading.current_thread().name))
    opened = Shop("async", app)
    opened.run(records(3))
    opened.executor.close()
    assert all(name.startswith("redrive-beside") for name in threads)


def test_manual_acks_from_other_threads_in_any_order(
    form: Form, shop: Callable[[App], Shop]
) -> None:
    waiting: list[Context] = []
    complete = threading.Event()

    def handle(record: Record, ctx: Context) -> None:
        waiting.append(ctx)
        if len(waiting) == 50:
            complete.set()

    async def handle_async(record: Record, ctx: Context) -> None:
        handle(record, ctx)

    app = App("shop", ordering="unordered", concurrency=4)
    app.handler("t", ack="manual")(handle_async if form == "async" else handle)
    opened = shop(app)

    def acknowledge_backwards() -> None:
        assert complete.wait(60)
        for ctx in reversed(waiting):
            ctx.ack()

    helper = threading.Thread(target=acknowledge_backwards)
    helper.start()
    opened.run(records(50))
    helper.join()
    position = opened.tracker.position()
    assert position is not None
    assert position.offset == 50


def test_the_executor_follows_from_the_apps_functions() -> None:
    app = App("shop")
    app.handler("t")(lambda record, ctx: None)
    resources = Resources(app)
    assert isinstance(executor_for(app, Scope(app, {}), resources), ThreadExecutor)

    app = App("shop")

    @app.handler("t")
    async def handle(record: Record, ctx: Context) -> None: ...

    found = executor_for(app, Scope(app, {}), Resources(app))
    assert isinstance(found, AsyncExecutor)


@pytest.mark.parametrize("form", ["threads", "async"])
def test_a_handler_that_does_not_end_is_left_behind_when_its_time_is_over(form: Form) -> None:
    go = threading.Event()
    began = threading.Event()

    def handle(record: Record, ctx: Context) -> None:
        began.set()
        go.wait(60)

    opened = Shop(form, app_with("threads", handle))
    opened.dispatcher.offer(opened.processor, records(1))
    assert began.wait(60)
    assert opened.executor.close(0.05) is False
    go.set()
    assert opened.sent == opened.outcomes == []


def test_an_async_handler_that_does_not_end_is_cancelled_when_its_time_is_over() -> None:
    app = App("shop")
    began, ended = threading.Event(), threading.Event()

    @app.handler("t")
    async def handle(record: Record, ctx: Context) -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    opened = Shop("async", app)
    opened.dispatcher.offer(opened.processor, records(1))
    assert began.wait(60)
    assert opened.executor.close(0.05) is False
    assert ended.wait(60)
    assert opened.outcomes == []  # that it was ended is nothing against its record
    assert opened.tracker.in_flight == 1


def test_records_of_a_batch_that_are_called_alone_have_a_calls_time_each() -> None:
    app = App("shop", concurrency=1)
    since: list[float] = []

    @app.handler("t", batch=10, timeout="1h")
    def handle(batch: list[Record], ctx: Context) -> None:
        since.extend(lot.since for lot in opened.dispatcher.under_way())
        if len(batch) > 1:
            raise ValueError("it does not say which")

    opened = Shop("threads", app)
    opened.run(records(3))
    opened.executor.close()
    assert len(since) == 4
    assert since == sorted(set(since))


def test_a_function_on_a_thread_of_asyncios_own_that_hangs_does_not_keep_the_loop_from_its_end(
    monkeypatch, caplog
):
    """Its handler was cancelled by its time-out: the thread goes on."""
    monkeypatch.setattr(event_loop, "LOOP_ANSWERS_WITHIN", 0.2)
    go = threading.Event()
    app = App("shop")

    @app.handler("t", timeout="10ms")
    async def handle(record, ctx):
        await asyncio.to_thread(go.wait, 30)

    shop = Shop("async", app)
    shop.run([Record("t", 0, 0, b"k", b"v")])
    try:
        assert shop.executor.close(30) is False
    finally:
        go.set()
    assert "asyncio.to_thread hangs: it is left behind" in caplog.text
