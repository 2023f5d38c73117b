"""`redrive dead`: see what failed. Commands that change something are in dead_replay.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import dead_view
from redrive.cli.dead_options import AsJson, Whose, of_letters, of_topic, output_file
from redrive.dead.filters import Filter
from redrive.dead.letters import exported

app = typer.Typer(
    help="Dead letters: see what failed, try the fix, drive it again.", no_args_is_help=True
)


@app.command()
@of_letters
def groups(whose: Whose, which: Filter, as_json: AsJson = False) -> None:
    """Show letters by cause, the largest group first."""
    found, scanned = whose.letters().groups(which)
    if as_json:
        data = {"groups": [each.as_data() for each in found], "scan": scanned.as_data()}
        typer.echo(json.dumps(data, indent=2))
    else:
        dead_view.groups(found, scanned)


@app.command("list")
@of_letters
def list_(
    whose: Whose,
    which: Filter,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List letters, one per line."""
    found, scanned = whose.letters().some(which, limit)
    if as_json:
        letters = [{**each.letter.as_data(), "state": each.state} for each in found]
        typer.echo(json.dumps({"letters": letters, "scan": scanned.as_data()}, indent=2))
    else:
        dead_view.letters(found, scanned)


@app.command()
@of_topic
def show(
    whose: Whose,
    place: Annotated[str, typer.Option("--at", metavar="PLACE", help="Such as shop.dead[0]@17.")],
    as_json: AsJson = False,
) -> None:
    """Show one letter: value, headers, error, attempts, and what was done about it."""
    detail = whose.letters().show(place)
    if as_json:
        data = exported(detail.found)
        data["shown"] = detail.value._asdict()
        data["history"] = [each._asdict() for each in detail.found.letter.history]
        data["operations"] = [each.as_data() for each in detail.operations]
        typer.echo(json.dumps(data, indent=2))
    else:
        dead_view.letter(detail)


@app.command()
@of_letters
def stats(whose: Whose, which: Filter, as_json: AsJson = False) -> None:
    """Count letters by state, reason, error, topic and hour."""
    found, scanned = whose.letters().stats(which)
    if as_json:
        typer.echo(json.dumps({**found.as_data(), "scan": scanned.as_data()}, indent=2))
    else:
        dead_view.stats(found, scanned)


@app.command()
@of_letters
def export(
    whose: Whose,
    which: Filter,
    out: Annotated[Path | None, typer.Option(help="A file; standard output by default.")] = None,
) -> None:
    """Write letters as JSON, one object per line, with their values and headers."""
    with output_file(out) as file:
        scanned = whose.letters().export(file, which)
    typer.echo(str(scanned), err=True)
