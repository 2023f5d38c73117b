"""What the tests of deliveries with a database have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redrive import App, Retry, RetryPolicy
from redrive.guarantees import GUARANTEES
from redrive.testing import Simulation

INBOX = tuple(word for word, each in GUARANTEES.items() if each.inbox)
OUTBOX = tuple(word for word, each in GUARANTEES.items() if each.outbox)


class Database:
    """What handlers do, with transactions: the inner ones are savepoints."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def insert(self, row: Any) -> None:
        self.rows.append(row)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = list(self.rows)
        try:
            yield
        except BaseException:
            self.rows[:] = before
            raise


def made(delivery: str, policy: RetryPolicy | None = None, **options: Any) -> App:
    return App("shop", delivery=delivery, retry=policy, **options)  # type: ignore[arg-type]  # -- one of the five words


def inserting(
    delivery: str,
    policy: RetryPolicy | None = None,
    *,
    fails: Sequence[int] = (),
    **options: Any,
) -> tuple[App, Simulation, Database]:
    """An app that inserts each record's value and sends it on; calls of these numbers fail."""
    app = made(delivery, policy)
    db = Database()
    calls: list[None] = []

    @app.handler("orders", **options)
    def insert(record, ctx):
        ctx.db.insert(record.value)
        ctx.send("told", record.value, key=record.key)
        calls.append(None)
        if len(calls) in fails:
            raise Retry("not now")

    return app, Simulation(app, db=db), db


def kinds(sim: Simulation) -> list[str]:
    return [outcome.kind for outcome in sim.outcomes]
