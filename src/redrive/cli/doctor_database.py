"""What `redrive doctor` asks of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from redrive.app import App
from redrive.cli.finding import Finding, not_checked, ok, warning, wrong
from redrive.errors import ConfigurationError
from redrive.guarantees import WITH_DATABASE
from redrive.ledger.names import DEFAULT_SCHEMA
from redrive.secret import Dsn

if TYPE_CHECKING:
    import psycopg  # an extra: imported where it is used

OLDEST: Final = 14
CLOCK_TOLERANCE: Final = 1000
"""Milliseconds by which two clocks may differ without a word."""

_CONNECT_SECONDS: Final = 5


def check_database(
    dsn: Dsn | None, app: App | None, schema: str = DEFAULT_SCHEMA
) -> Iterator[Finding]:
    """Reachable, new enough, allowed to make its tables, and what time it thinks it is."""
    needed = app is not None and app.delivery in WITH_DATABASE
    if dsn is None:
        yield _no_database(app, needed=needed)
        return
    try:
        import psycopg
    except ImportError:
        todo = "pip install 'redrive[postgres]'"
        yield (
            wrong("database", "psycopg is not installed", todo)
            if needed
            else not_checked("database", f"psycopg is not installed: {todo}")
        )
        return
    from redrive.ledger.address import checked

    try:
        address = checked(dsn.reveal())
        with psycopg.connect(address, connect_timeout=_CONNECT_SECONDS) as connection:
            yield from _ask(connection, dsn)
            if needed:
                yield _ledger(connection, schema)
    except ConfigurationError as error:
        yield wrong("database", str(error), "correct REDRIVE_DATABASE or --database")
    except psycopg.Error as error:
        yield wrong(
            "database",
            f"{dsn} cannot be reached: {str(error).strip().splitlines()[-1]}",
            "check the address, the password and that PostgreSQL runs",
        )


def _ledger(connection: psycopg.Connection[Any], schema: str) -> Finding:
    from redrive.ledger.migrating import status

    if status(connection, schema).complete:
        return ok("ledger", f"its tables are in schema {schema}")
    seen = f"its tables in schema {schema} are missing, or behind this redrive"
    return wrong("ledger", seen, "run `redrive ledger migrate`")


def clock_finding(subject: str, difference: int) -> Finding:
    """How far another clock is from this machine's, in milliseconds."""
    seen = f"{abs(difference)} ms {'ahead of' if difference > 0 else 'behind'} this machine"
    if abs(difference) <= CLOCK_TOLERANCE:
        return ok(subject, seen)
    return warning(
        subject,
        seen,
        "keep the clocks together (NTP): retries are never early, but they are late by as much",
    )


def _no_database(app: App | None, *, needed: bool) -> Finding:
    if needed and app is not None:
        return wrong(
            "database",
            f"none is given, and delivery {app.delivery!r} needs one",
            "set REDRIVE_DATABASE or give --database postgresql://...",
        )
    return not_checked("database", "none is given (--database, REDRIVE_DATABASE)")


def _ask(connection: psycopg.Connection[Any], dsn: Dsn) -> Iterator[Finding]:
    major = connection.info.server_version // 10_000
    if major < OLDEST:
        yield wrong("database", f"PostgreSQL {major} at {dsn}", f"use {OLDEST} or newer")
    else:
        yield ok("database", f"PostgreSQL {major} at {dsn}")
    yield _permissions(connection)
    yield clock_finding("database clock", _difference(lambda: _now(connection)))


def _permissions(connection: psycopg.Connection[Any]) -> Finding:
    row = connection.execute(
        "select current_user, current_schema(),"
        " has_schema_privilege(current_user, current_schema(), 'CREATE')"
    ).fetchone()
    user, schema, may_create = row or ("?", None, False)
    if may_create:
        return ok("database permissions", f"{user} may create tables in schema {schema}")
    if schema is None:
        return warning(
            "database permissions", f"{user} has no schema", "create one, or set search_path"
        )
    return warning(
        "database permissions",
        f"{user} may not create tables in schema {schema}",
        f"grant create on schema {schema} to {user}, or have redrive's tables made by others",
    )


def _now(connection: psycopg.Connection[Any]) -> int:
    query = "select (extract(epoch from clock_timestamp()) * 1000)::bigint"
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def _difference(their_time: Callable[[], int]) -> int:
    """Their time minus ours, taken in the middle of the question."""
    before = time.time_ns() // 1_000_000
    theirs = their_time()
    after = time.time_ns() // 1_000_000
    return theirs - (before + after) // 2
