"""What `redrive doctor` checks in PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from redrive.app import App
from redrive.cli.finding import Finding, misconfigured, not_checked, ok, warning, wrong
from redrive.errors import ConfigurationError
from redrive.guarantees import GUARANTEES
from redrive.ledger.names import DEFAULT_SCHEMA
from redrive.secret import Dsn

if TYPE_CHECKING:
    import psycopg  # an extra: imported where it is used

OLDEST: Final = 14
CLOCK_TOLERANCE: Final = 1000
"""Milliseconds by which two clocks may differ without a warning."""

_CONNECT_SECONDS: Final = 5


def check_database(
    dsn: Dsn | None, app: App | None, schema: str = DEFAULT_SCHEMA
) -> Iterator[Finding]:
    """Reachable, new enough, with the privileges that the app needs; and its clock."""
    needed = app is not None and app.guarantee.database
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
            connection.autocommit = True  # so that a rejected query does not affect the others
            yield from _ask(connection, dsn)
            yield from _tables_beside(connection, schema)
            if app is not None and needed:
                yield from _ledger(connection, schema, app)
    except ConfigurationError as error:
        yield misconfigured("database", str(error), "fix REDRIVE_DATABASE or --database")
    except psycopg.Error as error:
        said = str(error).strip().splitlines()[-1]
        if error.sqlstate is not None:  # it was reached, and answered
            todo = "check PostgreSQL's log and this role's privileges"
            yield wrong("database", f"{dsn} rejected a query: {said}", todo)
            return
        yield wrong(
            "database",
            f"{dsn} cannot be reached: {said}",
            "check the address and the password, and that PostgreSQL is running",
        )


def _ledger(connection: psycopg.Connection[Any], schema: str, app: App) -> Iterator[Finding]:
    from redrive.ledger import privileges
    from redrive.ledger.migrating import status

    needed = privileges.needed(GUARANTEES[app.delivery])
    grants = privileges.missing(connection, schema, needed)
    if grants:
        seen = f"delivery {app.delivery!r} needs more privileges in schema {schema}"
        yield wrong("database permissions", seen, f"have the ledger's owner run `{grants}`")
        if "on schema" in grants or ".migration" in grants:
            yield not_checked("ledger", "this role may not read which migrations were applied")
            return
    if not status(connection, schema).complete:
        seen = f"its tables in schema {schema} are missing or older than this redrive"
        yield wrong("ledger", seen, "run `redrive ledger migrate`")
        return
    yield ok("ledger", f"its tables are in schema {schema}")
    if not grants:
        seen = f"everything that delivery {app.delivery!r} needs in schema {schema}"
        yield ok("database permissions", seen)


def _tables_beside(connection: psycopg.Connection[Any], schema: str) -> Iterator[Finding]:
    """Warn if tables that a user creates would go into the ledger's schema."""
    row = connection.execute("select current_schema(), current_user").fetchone()
    if row is not None and row[0] == schema:
        yield warning(
            "search_path",
            f"tables that {row[1]} creates without naming a schema go into the ledger's, {schema}",
            "set another search_path for this role, or use another role",
        )


def clock_finding(subject: str, difference: int) -> Finding:
    """How far another clock is from this machine's, in milliseconds."""
    seen = f"{abs(difference)} ms {'ahead of' if difference > 0 else 'behind'} this machine"
    if abs(difference) <= CLOCK_TOLERANCE:
        return ok(subject, seen)
    return warning(
        subject,
        seen,
        "synchronise the clocks (NTP): retries are never early, but late by this difference",
    )


def _no_database(app: App | None, *, needed: bool) -> Finding:
    if needed and app is not None:
        return misconfigured(
            "database",
            f"none given, and delivery {app.delivery!r} needs one",
            "set REDRIVE_DATABASE or give --database postgresql://...",
        )
    return not_checked("database", "none given (--database, REDRIVE_DATABASE)")


def _ask(connection: psycopg.Connection[Any], dsn: Dsn) -> Iterator[Finding]:
    major = connection.info.server_version // 10_000
    if major < OLDEST:
        yield wrong("database", f"PostgreSQL {major} at {dsn}", f"use {OLDEST} or newer")
    else:
        yield ok("database", f"PostgreSQL {major} at {dsn}")
    yield clock_finding("database clock", _difference(lambda: _now(connection)))


def _now(connection: psycopg.Connection[Any]) -> int:
    query = "select (extract(epoch from clock_timestamp()) * 1000)::bigint"
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def _difference(their_time: Callable[[], int]) -> int:
    """Their time minus ours, as of the middle of the request."""
    before = time.time_ns() // 1_000_000
    theirs = their_time()
    after = time.time_ns() // 1_000_000
    return theirs - (before + after) // 2
