"""The shop as `redrive demo` runs it on Spark: its items are in PostgreSQL, its delays are short.

Delivery is at-least-once, so each statement is idempotent.
"""

import json
import os
from collections.abc import Iterator

import psycopg

from redrive import App, Context, Record, Retry, RetryPolicy

app = App("items", ordering="key", concurrency=4)


@app.resource
def db() -> Iterator[psycopg.Connection]:
    """A connection per worker process."""
    with psycopg.connect(os.environ["REDRIVE_DATABASE"], autocommit=True) as connection:
        yield connection


@app.handler("item.create", decode=json.loads)
def create(record: Record, ctx: Context) -> None:
    ctx.resources.db.execute(
        "insert into item (id, status) values (%s, 'NEW') on conflict do nothing",
        [record.data["id"]],
    )


@app.handler(
    "item.update",
    decode=json.loads,
    retry=RetryPolicy("1s 1s 3s 3s 3s 6s"),
    sends="item.updated",
)
def update(record: Record, ctx: Context) -> None:
    changed = ctx.resources.db.execute(
        "update item set status = %s where id = %s", [record.data["status"], record.data["id"]]
    )
    if changed.rowcount == 0:
        raise Retry("the item does not exist yet")
    ctx.send("item.updated", record.value, key=record.key)
