"""What handlers return, and what wraps them: only what has run counts as done."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools

import pytest

from redrive import App, Bury, ConfigurationError, RetryPolicy
from redrive.testing import Simulation


def app_with(function, delivery="at-least-once", **options):
    app = App("items", delivery=delivery)
    app.handler("orders", **options)(function)
    return app


def run(app):
    """Run the app with one record, as far as it goes now; gives the simulation."""
    with Simulation(app) as sim:
        sim.send("orders", b"v", key="k")
        sim.run()
    return sim


def through(function):
    """As any decorator does."""

    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


def without_await(function):
    @functools.wraps(function)
    async def wrapper(*arguments):
        return function(*arguments)

    return wrapper


async def coroutine(*_):
    raise AssertionError("never runs")


async def async_generator(*_):
    yield


def generator(*_):
    yield


class Yields:
    def __call__(self, record, ctx):
        yield


class YieldsAsync:
    async def __call__(self, record, ctx):
        yield


NEVER_RAN = [
    lambda *given: coroutine(given),
    through(generator),
    through(async_generator),
    without_await(coroutine),
    without_await(generator),
    without_await(async_generator),
    lambda *_: (number for number in range(3)),
    lambda *_: concurrent.futures.Future(),
    without_await(lambda *_: asyncio.get_running_loop().create_future()),
]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"batch": 10},
        {"decode": bytes},
        {"recover": True},
        {"delivery": "idempotent"},
        {"delivery": "idempotent", "batch": 10},
    ],
)
@pytest.mark.parametrize("function", NEVER_RAN, ids=range(len(NEVER_RAN)))
def test_what_a_call_returns_to_be_done_later_never_counts_as_done(function, choice):
    if not choice.get("recover"):
        sim = run(app_with(function, **choice))
    else:

        def handle(record, ctx):
            raise Bury("the recovery comes first")

        app = app_with(handle, retry=RetryPolicy("5m"))
        app.recover(function)
        assert run(app).parked  # and tried again
        return
    [dead] = sim.dead
    assert dead.envelope.error_type == "TypeError"
    assert " returned " in dead.envelope.error_message


@pytest.mark.parametrize("function", [generator, async_generator, Yields(), YieldsAsync()])
def test_a_function_that_yields_is_refused_at_the_start(function):
    with pytest.raises(ConfigurationError, match="yields, so its body would never run"):
        app_with(function).check()


@pytest.mark.parametrize("is_async", [False, True])
def test_with_manual_acks_work_may_go_on_after_the_call(is_async):
    def handle(record, ctx):
        ctx.ack()
        return concurrent.futures.Future()

    sim = run(app_with(without_await(handle) if is_async else handle, ack="manual"))
    assert sim.dead == []


def in_a_thread(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, function(*arguments)).result()

    return wrapper


def in_its_own_loop(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return asyncio.run(function(*arguments))

    return wrapper


@pytest.mark.parametrize("choice", [{}, {"batch": 10}, {"recover": True}, {"delivery": "outbox"}])
@pytest.mark.parametrize("decorated", [through, in_a_thread, in_its_own_loop])
def test_a_plain_wrapper_of_an_async_function_may_run_it_itself_or_hand_it_on(decorated, choice):
    seen = []

    @decorated
    async def function(given, *_):
        await asyncio.sleep(0)
        seen.append(given)

    if choice.pop("recover", False):
        app = app_with(lambda record, ctx: 1 / 0)
        app.recover(function)
        assert [dead.reason for dead in run(app).dead] == ["exhausted"]
    else:
        assert run(app_with(function, **choice)).dead == []
    assert len(seen) == 1
