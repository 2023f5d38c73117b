"""Headers with their own column in the outbox: CDC tools can turn only columns into headers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import sql

from redrive.errors import ConfigurationError
from redrive.ledger.names import DEFAULT_SCHEMA


def column_of(header: str) -> str:
    """The column that a header gets: `content-type` is in `header_content_type`."""
    name = "header_" + re.sub(r"[^a-z0-9]+", "_", header.lower()).strip("_")
    if not header or len(name) > 63 or name == "header_":
        raise ConfigurationError(f"no column can be named after header {header!r}")
    return name


def add_header_columns(
    connection: psycopg.Connection[Any], headers: Iterable[str], schema: str = DEFAULT_SCHEMA
) -> None:
    """Add columns for these headers; existing ones are kept. Older rows have null there.

    ConfigurationError if two headers would share a column: all are added, or none.
    """
    wanted = {header: column_of(header) for header in headers}
    table = sql.Identifier(schema, "header_column")
    note = sql.SQL("insert into {} (header, name) values (%s, %s) on conflict do nothing")
    look = sql.SQL("select header from {} where name = %s")
    with connection.transaction(), connection.cursor() as cursor:
        for header, column in wanted.items():
            cursor.execute(note.format(table), (header, column))
            [(owner,)] = cursor.execute(look.format(table), (column,)).fetchall()
            if owner != header:
                raise ConfigurationError(
                    f"the headers {owner!r} and {header!r} would share the column {column}: leave"
                    " one of them out, or have its senders use another name"
                )
            cursor.execute(
                sql.SQL("alter table {} add column if not exists {} text").format(
                    sql.Identifier(schema, "outbox"), sql.Identifier(column)
                )
            )
