"""Whatever ends a thread is contained, or ends the engine with its cause: never silently."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from executor_shop import Form, Shop, app_with, records

from redrive import App, Context, Record
from redrive.processing.execution import hanging

PATIENCE = 60


class Panic(BaseException):
    """What functions that are written in Rust raise: no Exception."""


@pytest.fixture
def shop() -> Iterator[Callable[[Form, App], Shop]]:
    opened: list[Shop] = []

    def open_shop(form: Form, app: App) -> Shop:
        opened.append(Shop(form, app))
        return opened[-1]

    yield open_shop
    for each in opened:
        each.executor.close()


OpenShop = Callable[[Form, App], Shop]


def odd_ones(opened: Shop) -> list[int]:
    """Offsets that did not end well, once all have ended; the others were done."""
    opened.run(records(20))
    opened.run([Record("t", 0, 20 + n, b"another key", b"v") for n in range(3)])
    assert {outcome.kind for outcome in opened.outcomes} <= {"bury"}
    return sorted(outcome.offset for outcome in opened.outcomes)


# What users' functions raise is their record's


@pytest.mark.parametrize("form", ["threads", "async"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, Panic, SystemExit])
def test_what_a_handler_raises_ends_no_thread(
    form: Form, error: type[BaseException], shop: OpenShop
) -> None:
    def handle(record: Record, ctx: Context) -> None:
        if record.offset == 3:
            raise error

    assert odd_ones(shop(form, app_with(form, handle))) == [3]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Panic])
@pytest.mark.parametrize("awaited", [True, False])
def test_what_a_task_of_a_handler_raises_does_not_end_the_event_loop(
    awaited: bool, error: type[BaseException], shop: OpenShop
) -> None:
    app = App("shop", concurrency=4)
    tasks = []

    async def child() -> None:
        raise error

    @app.handler("t")
    async def handle(record: Record, ctx: Context) -> None:
        if record.offset != 3:
            return
        tasks.append(asyncio.create_task(child()))
        if awaited:
            await asyncio.gather(*tasks)

    assert odd_ones(shop("async", app)) == ([3] if awaited else [])
    assert all(isinstance(task.exception(), error) for task in tasks)


def test_a_handler_that_stops_the_event_loop_stops_nothing(shop: OpenShop) -> None:
    app = App("shop", concurrency=4)

    @app.handler("t")
    async def handle(record: Record, ctx: Context) -> None:
        asyncio.get_running_loop().stop()

    assert odd_ones(shop("async", app)) == []


def panic(given: Any) -> Any:
    raise Panic("a decoder that is written in Rust")


@pytest.mark.parametrize("form", ["inline", "threads", "async"])
@pytest.mark.parametrize("recovers", [False, True])
def test_a_decoder_that_panics_has_its_record_buried_as_undecodable(
    form: Form, recovers: bool, shop: OpenShop
) -> None:
    app = App("shop", concurrency=4)

    async def handle_async(record: Record, ctx: Context) -> None: ...

    def handle(record: Record, ctx: Context) -> None: ...

    app.handler("t", decode=panic)(handle_async if form == "async" else handle)
    if recovers:
        app.recover(lambda record, error, ctx: None)
    opened = shop(form, app)
    opened.run(records(4))
    assert sorted((each.offset, each.reason) for each in opened.outcomes) == [
        (offset, "undecodable") for offset in range(4)
    ]


@pytest.mark.parametrize("form", ["inline", "threads", "async"])
def test_an_id_function_that_panics_has_its_record_buried_without_an_id(
    form: Form, shop: OpenShop
) -> None:
    def handle(record: Record, ctx: Context) -> None:
        raise OSError("no")

    app = App("shop", concurrency=4)

    async def handle_async(record: Record, ctx: Context) -> None:
        handle(record, ctx)

    app.handler("t", id=panic)(handle_async if form == "async" else handle)
    opened = shop(form, app)
    opened.run(records(2))
    assert [each.reason for each in opened.outcomes] == ["no-id", "no-id"]
    assert "Panic" in str(opened.outcomes[0].error)


@pytest.mark.parametrize("form", ["threads", "async"])
def test_an_error_whose_text_panics_is_an_error_like_others(form: Form, shop: OpenShop) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise Panic

    def handle(record: Record, ctx: Context) -> None:
        if record.offset == 3:
            raise Unspeakable

    assert odd_ones(shop(form, app_with(form, handle))) == [3]


# Whatever else ends a thread is reported to who runs it


@pytest.mark.parametrize("form", ["threads", "async"])
@pytest.mark.parametrize("step", ["take", "report"])
def test_a_mistake_of_ours_that_ends_a_thread_is_reported(
    form: Form, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    opened = Shop(form, app_with(form, lambda record, ctx: None), on_death=deaths.put)

    def mistaken(*_: Any, **__: Any) -> None:
        raise IndexError("a mistake of ours")

    broken = {"take": "next", "report": "end"}[step]
    monkeypatch.setattr(opened.processor, broken, mistaken)
    opened.dispatcher.offer(opened.processor, records(1))
    assert isinstance(deaths.get(timeout=PATIENCE), IndexError)
    assert opened.executor.close(0.1) in (True, False)  # and it ends


def test_a_call_that_comes_back_as_it_is_given_up_does_not_end_the_poll_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its result is there, its lot is not reported yet: nothing is left to fail."""
    app = App("shop")
    app.handler("t", timeout="1s")(lambda record, ctx: None)
    opened = Shop("inline", app)
    opened.dispatcher.offer(opened.processor, records(1))
    lot = opened.dispatcher.take()
    assert lot is not None
    lot.calls_with(lot.begin())

    def come_back(_: int) -> str:
        lot.returned()
        lot.results.append(None)
        return ""

    monkeypatch.setattr(hanging, "stack_of", come_back)
    opened.scope.timer = lambda: monotonic() + 3600
    assert hanging.give_up_hung(opened.scope, opened.dispatcher, None) == []
    opened.dispatcher.report(lot)
    assert (opened.outcomes, opened.dispatcher.running) == ([], 0)
    opened.executor.close()
