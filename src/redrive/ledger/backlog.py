"""What waits in the outbox."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from redrive.ledger.names import DEFAULT_SCHEMA
from redrive.tuning import BACKLOG_MOST


class Backlog(NamedTuple):
    """How many rows of one app wait for one topic, and how long the oldest has."""

    app: str
    topic: str
    rows: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"outbox of {self.app}: {self.rows} for {self.topic}, the oldest {self.seconds:.0f} s"
        )


def backlogs(
    connection: psycopg.Connection[Any], schema: str = DEFAULT_SCHEMA, app: str | None = None
) -> list[Backlog]:
    """What waits, by app and topic."""
    query = sql.SQL(
        "select app, topic, count(*),"
        " greatest(extract(epoch from clock_timestamp() - min(created)), 0)::float8"
        " from (select app, topic, created from {} where %s::text is null or app = %s limit %s) row"
        " group by app, topic order by app, topic"
    ).format(sql.Identifier(schema, "outbox"))
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query, (app, app, BACKLOG_MOST))
        return [Backlog(*row) for row in cursor.fetchall()]
