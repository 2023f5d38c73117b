"""The ledger's schema: numbered SQL files, applied in order, never rolled back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from redrive.errors import LedgerError
from redrive.ledger.names import DEFAULT_SCHEMA, lock_class


@dataclass(frozen=True)
class Migration:
    """One SQL file: `0001_inbox_and_outbox.sql`."""

    version: int
    name: str
    text: str


@dataclass(frozen=True)
class Status:
    """What a database has, compared with what this redrive needs."""

    schema: str
    applied: tuple[tuple[int, str, datetime], ...]
    missing: tuple[Migration, ...]

    @property
    def complete(self) -> bool:
        """Whether this redrive can work with it; a newer redrive may have added more."""
        return not self.missing


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations, in order."""
    folder = files("redrive.ledger") / "migrations"
    found = [one for one in folder.iterdir() if one.name.endswith(".sql")]
    return tuple(
        Migration(int(one.name[:4]), one.name[5:-4], one.read_text())
        for one in sorted(found, key=lambda one: one.name)
    )


def migrate(
    connection: psycopg.Connection[Any],
    schema: str = DEFAULT_SCHEMA,
    *,
    known: Sequence[Migration] | None = None,
) -> list[Migration]:
    """Apply what is missing, all or nothing; returns what was applied.

    Safe to run concurrently: the processes take turns, and the later ones find nothing to do.
    """
    with connection.transaction(), connection.cursor() as cursor:
        # A process that waited for another must see its changes, whatever the database's default.
        cursor.execute("set transaction isolation level read committed")
        key = (lock_class("migrate", schema), 0)
        cursor.execute("select pg_advisory_xact_lock(%s, %s)", key)
        _make_schema(cursor, schema)
        applied = {version for version, *_ in _applied(cursor, schema)}
        missing = _missing(known, applied)
        for migration in missing:
            cursor.execute(migration.text.encode())  # bytes: a script, not a query with parameters
            cursor.execute(
                "insert into migration (version, name) values (%s, %s)",
                (migration.version, migration.name),
            )
    return missing


def status(
    connection: psycopg.Connection[Any],
    schema: str = DEFAULT_SCHEMA,
    *,
    known: Sequence[Migration] | None = None,
) -> Status:
    """Which migrations are applied, and which are missing."""
    with connection.transaction(), connection.cursor() as cursor:
        applied = _applied(cursor, schema)
    versions = {version for version, *_ in applied}
    return Status(schema, tuple(applied), tuple(_missing(known, versions)))


def require(connection: psycopg.Connection[Any], schema: str = DEFAULT_SCHEMA) -> None:
    """Raise an error unless the tables that this redrive needs are there."""
    found = status(connection, schema)
    if not found.complete:
        what = "is behind" if found.applied else "does not exist yet"
        raise LedgerError(f"the ledger in schema {schema} {what}: run `redrive ledger migrate`")


def _missing(known: Sequence[Migration] | None, applied: Iterable[int]) -> list[Migration]:
    every = migrations() if known is None else known
    return [one for one in every if one.version not in set(applied)]


def _make_schema(cursor: psycopg.Cursor[Any], schema: str) -> None:
    # Checked first: `if not exists` needs the privilege to create schemas even if it exists.
    cursor.execute("select from pg_namespace where nspname = %s", (schema,))
    name = sql.Identifier(schema)
    if cursor.rowcount == 0:
        cursor.execute(sql.SQL("create schema {}").format(name))
    cursor.execute(sql.SQL("set local search_path to {}, pg_temp").format(name))
    cursor.execute(
        "create table if not exists migration (version integer primary key, name text not null,"
        " applied timestamptz not null default now())"
    )


def _applied(cursor: psycopg.Cursor[Any], schema: str) -> list[tuple[int, str, datetime]]:
    table = sql.Identifier(schema, "migration")
    cursor.execute("select to_regclass(%s)", (table.as_string(cursor),))
    row = cursor.fetchone()
    if row is None or row[0] is None:
        return []
    cursor.execute(sql.SQL("select version, name, applied from {} order by version").format(table))
    return [(version, name, applied) for version, name, applied in cursor.fetchall()]
