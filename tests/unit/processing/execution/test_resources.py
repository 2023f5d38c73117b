"""Resources that cannot be opened, or raise when they are closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from executor_shop import FORMS, Form, Shop, records

from redrive import App, Context, Record
from redrive.errors import ResourceError
from redrive.processing.execution import event_loop, executors


class Panic(BaseException):
    """What is no Exception."""


def app_with(log: list[str], *, opening: Any = None, closing: Any = None, form: Form) -> App:
    """An app whose second of three resources raises."""
    app = App("shop")

    @app.resource
    def first() -> Iterator[str]:
        yield "first"
        log.append("first closed")

    def second() -> Iterator[str]:
        if opening is not None:
            raise opening
        yield "second"
        if closing is not None:
            raise closing

    async def second_async() -> AsyncIterator[str]:
        for each in second():
            await asyncio.sleep(0)
            yield each

    made: Any = second_async if form == "async" else second
    made.__name__ = "second"
    app.resource(made)

    @app.resource
    def third() -> Iterator[str]:
        yield "third"
        log.append("third closed")

    @app.handler("t")
    def handle(record: Record, ctx: Context) -> None: ...

    return app


ERRORS = [
    ConnectionError("gone"),
    SystemExit(3),
    Panic("gone"),
    KeyboardInterrupt("raised by code"),
]


@pytest.fixture
def no_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that handles the signal by itself: nothing that is raised is Ctrl-C."""
    monkeypatch.setattr("redrive.threads.main_thread", lambda: None)


@pytest.mark.usefixtures("no_ctrl_c")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("form", FORMS)
def test_one_that_raises_when_it_is_closed_is_named_and_the_others_are_closed(
    form: Form, error: BaseException
) -> None:
    log: list[str] = []
    opened = Shop(form, app_with(log, closing=error, form=form))
    opened.run(records(3))
    with pytest.raises(ResourceError, match='resource "second" could not be closed: '):
        opened.executor.close(1)
    assert log == ["third closed", "first closed"]


@pytest.mark.usefixtures("no_ctrl_c")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("form", FORMS)
def test_one_that_cannot_be_opened_is_named_and_those_before_it_are_closed(
    form: Form, error: BaseException
) -> None:
    log: list[str] = []
    with pytest.raises(ResourceError, match='resource "second" could not be opened: '):
        Shop(form, app_with(log, opening=error, form=form))
    assert log == ["first closed"]


def test_why_one_cannot_be_opened_is_not_hidden_by_another_that_cannot_be_closed() -> None:
    app = App("shop")

    @app.resource
    def pool() -> Iterator[None]:
        yield
        raise OSError("the pool")

    @app.resource
    def client() -> Iterator[None]:
        raise ConnectionError("the server")
        yield

    app.handler("t")(lambda record, ctx: None)
    with pytest.raises(ResourceError, match=r'"client" could not be opened: .*the server'):
        Shop("threads", app)


@pytest.mark.parametrize("yields", [0, 2])
def test_one_that_does_not_yield_once_is_reported(yields: int) -> None:
    app = App("shop")

    @app.resource
    def client() -> Iterator[int]:
        yield from range(yields)

    app.handler("t")(lambda record, ctx: None)

    def open_and_close() -> None:
        Shop("threads", app).executor.close()

    with pytest.raises(ResourceError, match=r"it yields nothing|it yields a second time"):
        open_and_close()


def test_an_event_loop_that_a_handler_blocks_is_left_behind_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_loop, "LOOP_ANSWERS_WITHIN", 0.1)
    app = App("shop", concurrency=4)
    begun, go = threading.Event(), threading.Event()

    def wait_here() -> None:
        begun.set()
        go.wait(60)

    @app.handler("t", timeout="1ms")
    async def handle(record: Record, ctx: Context) -> None:
        wait_here()

    of_others = {*threading.enumerate()}
    opened = Shop("async", app)
    (loop,) = {each for each in threading.enumerate() if each.name == "redrive-loop"} - of_others
    opened.dispatcher.offer(opened.processor, records(1))
    assert begun.wait(60)
    assert opened.executor.close(0.05) is False
    assert "wait_here" in caplog.text  # where it is
    go.set()
    loop.join(60)  # it ends as soon as it can
    assert not loop.is_alive()
    assert opened.outcomes == []


@pytest.mark.parametrize("form", ["threads", "async", "async, blocking its loop"])
def test_one_that_does_not_close_is_named_and_left_behind(
    form: Form, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A pool that waits for what a handler has taken out of it, and does not give back."""
    monkeypatch.setattr(executors, "RESOURCES_TO_CLOSE", 0.1)
    monkeypatch.setattr(event_loop, "RESOURCES_TO_CLOSE", 0.1)
    given_back = threading.Event()
    of_others = {*threading.enumerate()}  # tests of hanging handlers leave threads behind
    closed: list[str] = []
    app = App("shop")

    @app.resource
    def first() -> Iterator[str]:
        yield "first"
        closed.append("first")

    def pool() -> Iterator[str]:
        yield "pool"
        given_back.wait(20)

    async def pool_async() -> AsyncIterator[str]:
        yield "pool"
        for _ in range(2000):
            if not given_back.is_set():
                await asyncio.sleep(0.01)

    pool_async.__name__ = "pool"
    app.resource(pool_async if form == "async" else pool)  # type: ignore[arg-type]  # -- either
    app.handler("t")(lambda record, ctx: None)
    shop = Shop(form.partition(",")[0], app)
    try:
        assert shop.executor.close(1) is False
    finally:
        given_back.set()
    assert 'resource "pool" did not close within' in caplog.text
    assert 'left behind, and "first" with it' in caplog.text
    for thread in {*threading.enumerate()} - of_others:
        thread.join(60)
    assert closed == []  # the one that hung could still have used it
