"""Each call of an async function is a task of its own: a late cancel() hits nobody else."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from deliveries import Database, made
from executor_shop import Shop, records

from redrive import App, RetryPolicy
from redrive.testing import Simulation

EVENT_LOOPS = ["inline", "async"]
seen: ContextVar[int] = ContextVar("seen")


def cancel_soon() -> None:
    """What a handler does that sets a timer for its task and does not stop it: it returns first."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)


async def work_on() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def one(record: Any, ctx: Any) -> None:
    if record.offset == 0:
        cancel_soon()
    else:
        await work_on()


async def batch(all_: Any, ctx: Any) -> None:
    if len(all_) > 1:
        raise ValueError("it does not say which")
    await one(all_[0], ctx)


@pytest.mark.parametrize("form", EVENT_LOOPS)
@pytest.mark.parametrize(("handle", "size"), [(one, None), (batch, 3)])
def test_a_cancel_that_comes_after_its_call_fails_no_other_record(form, handle, size):
    app = App("shop", ordering="partition", concurrency=1, retry=RetryPolicy("1s"))
    app.handler("t", batch=size)(handle)
    deaths: list[BaseException] = []
    shop = Shop(form, app, deaths.append)
    shop.run(records(3))
    shop.executor.close()
    assert not deaths
    assert [each for each in shop.outcomes if each.kind != "done"] == []


def test_nor_one_of_the_same_unit_of_work():
    app, db = made("idempotent", RetryPolicy("1s"), ordering="partition"), Database()

    @app.handler("orders")
    async def insert(record, ctx):
        ctx.db.insert(record.value)
        await one(record, ctx)

    with Simulation(app, db=db) as sim:
        for name in ("1", "2", "3"):
            sim.send("orders", name)
        sim.run()
        assert db.rows == [b"1", b"2", b"3"]
        assert not sim.parked


@pytest.mark.parametrize("form", EVENT_LOOPS)
def test_context_variables_are_of_one_call(form):
    app = App("shop", ordering="partition")
    found: list[int | None] = []

    @app.handler("t")
    async def handle(record, ctx):
        found.append(seen.get(None))
        seen.set(record.offset)

    shop = Shop(form, app)
    shop.run(records(3))
    shop.executor.close()
    assert found == [None, None, None]
