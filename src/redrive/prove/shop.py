"""The app that `redrive prove` runs: each record causes a POST, an INSERT and a message.

Importing it arms the failpoints of the process, if its orders name one.
"""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Callable
from typing import Any

import psycopg

from redrive import App, Context, Record, failpoints
from redrive.failpoints import Point, Prepare
from redrive.prove.orders import read

ORDERS = read()
EFFECT = "insert into effect (id) values (%s)"


def _fail(point: Point, prepare: Prepare | None) -> None:
    """Die or freeze here, the first time."""
    if point != ORDERS.point:
        return
    if prepare is not None:
        prepare()
    try:
        os.close(os.open(ORDERS.marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL if ORDERS.act == "kill" else signal.SIGSTOP)


if ORDERS.point is not None:
    failpoints.arm(_fail)

app = App(ORDERS.name, delivery=ORDERS.delivery, database=ORDERS.database)


@app.handler(ORDERS.source)
def handle(record: Record, ctx: Context) -> None:
    """POST, INSERT, produce; where the INSERT's transaction ends depends on the delivery."""
    order = (record.value or b"").decode()
    _post(order, ctx.idempotency_key)
    _INSERTS[ORDERS.delivery](order, ctx)
    given: dict[str, Any] = {"id": f"{ORDERS.name}-{order}"} if ORDERS.own_ids else {}
    ctx.send(ORDERS.outbound, record.value, key=record.key, **given)


def _post(order: str, key: str) -> None:
    request = urllib.request.Request(  # noqa: S310 -- an address on this machine, from the orders
        ORDERS.service, order.encode(), {"Idempotency-Key": key}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310 -- likewise
        pass


def _with_autocommit(order: str, _: Context) -> None:
    with psycopg.connect(ORDERS.database, autocommit=True) as connection:
        connection.execute(EFFECT, [order])
    failpoints.hit("after-work")


def _with_own_transaction(order: str, _: Context) -> None:
    with psycopg.connect(ORDERS.database) as connection:
        connection.execute(EFFECT, [order])
        failpoints.hit("after-work")


def _within_the_unit(order: str, ctx: Context) -> None:
    ctx.db.execute(EFFECT, [order])
    failpoints.hit("after-work")


_INSERTS: dict[str, Callable[[str, Context], None]] = {
    "at-least-once": _with_autocommit,
    "transaction": _with_own_transaction,
    "idempotent": _within_the_unit,
    "outbox": _within_the_unit,
    "idempotent+outbox": _within_the_unit,
}
