"""A shop whose updates may arrive before their creates, written as a user of redrive would.

`redrive demo` runs it; `redrive topics redrive.demo.shop:app` shows the topics that it needs.
"""

import json
from collections.abc import Iterator

from redrive import App, Context, Record, Retry, RetryPolicy

app = App("items", ordering="key", concurrency=4)


@app.resource
def items() -> Iterator[dict[str, str]]:
    """The status of each item, by id. It stands for a database."""
    yield {}


@app.handler("item.create", decode=json.loads)
def create(record: Record, ctx: Context) -> None:
    ctx.resources.items.setdefault(record.data["id"], "NEW")


@app.handler(
    "item.update",
    decode=json.loads,
    retry=RetryPolicy("5m 5m 30m 30m 30m 1h"),
    sends="item.updated",
)
def update(record: Record, ctx: Context) -> None:
    item, status = record.data["id"], record.data["status"]
    if item not in ctx.resources.items:
        raise Retry("the item does not exist yet")
    ctx.resources.items[item] = status
    ctx.send("item.updated", json.dumps({"id": item, "status": status}), key=item)
