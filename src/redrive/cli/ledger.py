"""`redrive ledger`: manages redrive's tables in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.options import AsJson, Database
from redrive.cli.output import terminal
from redrive.config import Settings, SettingsArguments, load_settings
from redrive.delivery.equipping import require_psycopg
from redrive.errors import LedgerError
from redrive.loading import load_app

if TYPE_CHECKING:
    import psycopg

    from redrive.ledger.migrating import Status

app = typer.Typer(help="Manage redrive's tables in PostgreSQL.", no_args_is_help=True)

Target = Annotated[
    str | None, typer.Argument(metavar="[MODULE:APP]", help="Use this app's settings.")
]
_CONNECT_SECONDS = 10


@app.command()
def migrate(
    target: Target = None,
    database: Database = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Add an outbox column for this header; repeatable."),
    ] = None,
) -> None:
    """Create the tables or bring them up to date. Safe to repeat, and to run concurrently."""
    settings = _settings(target, database)
    with connected(settings) as connection:
        from redrive.ledger.header_columns import add_header_columns
        from redrive.ledger.migrating import migrate as apply

        applied = apply(connection, settings.ledger_schema)
        add_header_columns(connection, header or (), settings.ledger_schema)
    for one in applied:
        typer.echo(f"applied {one.version:04} {one.name}")
    if not applied:
        typer.echo("nothing to do: all migrations are applied")


@app.command()
def status(
    target: Target = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show which migrations are applied, and what is waiting in the outbox.

    Exit code 0 if all migrations are applied, 1 otherwise.
    """
    settings = _settings(target, database)
    with connected(settings) as connection:
        from redrive.ledger.backlog import Backlog, backlogs
        from redrive.ledger.migrating import status as look

        found = look(connection, settings.ledger_schema)
        waiting: list[Backlog] = []
        if found.complete:
            waiting = backlogs(connection, settings.ledger_schema)
    if as_json:
        content = _as_data(found) | {"outbox": [one._asdict() for one in waiting]}
        typer.echo(json.dumps(content, indent=2))
    else:
        console = terminal()
        for line in [*_lines(found), *map(str, waiting)]:
            console.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(0 if found.complete else 1)


@contextmanager
def connected(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """A connection with autocommit; refusals of the database become one sentence."""
    require_psycopg()
    import psycopg

    from redrive.ledger.address import checked

    try:
        with psycopg.connect(
            checked(settings.dsn()), autocommit=True, connect_timeout=_CONNECT_SECONDS
        ) as connection:
            yield connection
    except psycopg.errors.InsufficientPrivilege as error:
        raise LedgerError(
            f"{settings.database}: {error.diag.message_primary}: see docs/reference/ledger.md for"
            " the privileges that each role needs"
        ) from None
    except psycopg.OperationalError as error:
        said = str(error).strip().splitlines()[-1]
        raise LedgerError(f"{settings.database} cannot be reached: {said}") from None


def _settings(target: str | None, database: str | None) -> Settings:
    given: SettingsArguments = {} if database is None else {"database": database}
    return load_settings(given, *([load_app(target).settings] if target else []))


def _as_data(found: Status) -> dict[str, Any]:
    return {
        "schema": found.schema,
        "complete": found.complete,
        "applied": [
            {"version": version, "name": name, "applied": at.isoformat()}
            for version, name, at in found.applied
        ],
        "missing": [{"version": one.version, "name": one.name} for one in found.missing],
    }


def _lines(found: Status) -> Iterator[str]:
    for version, name, at in found.applied:
        yield f"{version:04} {name}: applied {at:%Y-%m-%d %H:%M:%S %z}"
    for one in found.missing:
        yield f"{one.version:04} {one.name}: missing: run `redrive ledger migrate`"
