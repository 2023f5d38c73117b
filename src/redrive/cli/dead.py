"""`redrive dead`: see what failed. Commands that change something are in dead_replay.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli import dead_view
from redrive.cli.dead_options import (
    On,
    Whose,
    of_letters,
    of_topic,
    on_engine,
    refuse_unless,
)
from redrive.cli.dead_spark import asked, asked_on_spark
from redrive.cli.options import AsJson
from redrive.cli.output_file import output_file
from redrive.cli.spark_process import ON_SPARK
from redrive.dead.filters import Filter
from redrive.dead.letters import exported
from redrive.dead.showing import Seen
from redrive.engines.spark.dead.counting import Form
from redrive.errors import ConfigurationError

app = typer.Typer(
    help="Dead letters: see what failed, try the fix, replay it.", no_args_is_help=True
)


@app.command()
@on_engine
def groups(whose: Whose, which: Filter, on: On, as_json: AsJson = False) -> None:
    """Show letters by cause, the largest group first."""
    found, scanned = asked(whose, on, lambda letters: letters.groups(which))
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
        letters = [
            {**Seen(each.letter, whose.app).as_data(), "state": each.state} for each in found
        ]
        typer.echo(json.dumps({"letters": letters, "scan": scanned.as_data()}, indent=2))
    else:
        dead_view.letters(found, scanned, whose.app)


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
        data = exported(detail.found, detail.seen)
        data["shown"] = detail.value._asdict()
        data["history"] = [each._asdict() for each in detail.seen.history]
        data["operations"] = [each.as_data() for each in detail.operations]
        typer.echo(json.dumps(data, indent=2))
    else:
        dead_view.letter(detail)


@app.command()
@on_engine
def stats(whose: Whose, which: Filter, on: On, as_json: AsJson = False) -> None:
    """Count letters by state, reason, error, topic and hour."""
    found, scanned = asked(whose, on, lambda letters: letters.stats(which))
    if as_json:
        typer.echo(json.dumps({**found.as_data(), "scan": scanned.as_data()}, indent=2))
    else:
        dead_view.stats(found, scanned)


@app.command()
@on_engine
def export(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    which: Filter,
    on: On,
    out: Annotated[
        Path | None,
        typer.Option(help="A file; standard output by default. Not with --engine spark."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder to create; each task writes a file.",
            rich_help_panel=ON_SPARK,
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="json by default.", rich_help_panel=ON_SPARK),
    ] = None,
    unmasked: Annotated[
        bool, typer.Option("--unmasked", help="Include masked fields; values are raw bytes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write letters as JSON, one object per line, with their values and headers."""
    refuse_unless(on.engine == "spark", ON_SPARK, {"--to": to, "--format": form})
    refuse_unless(on.engine == "local", "Only with --engine local", {"--out": out})
    if as_json and on.engine == "local" and out is None:
        raise ConfigurationError(
            "--json: standard output has the letters themselves, which are JSON; name a file for"
            " them with --out, or leave --json out"
        )
    if on.engine == "local":
        with output_file(out) as file:
            scanned = whose.letters().export(file, which, unmasked=unmasked)
    elif to is None:
        raise ConfigurationError("--to is missing: name the folder that Spark's tasks write to")
    elif whose.app is not None and whose.app.masked and not unmasked:
        raise ConfigurationError(
            "the app masks fields, and tasks of Spark write letters as raw bytes: add --unmasked if"
            " that is meant, or use --engine local"
        )
    else:
        folder = to
        scanned = asked_on_spark(
            whose, on, lambda letters: letters.export(folder, form or "json", which)
        )
    if as_json:
        where = {"folder": to} if out is None else {"file": str(out)}
        found = {**where, "written": scanned.matched, "scan": scanned.as_data()}
        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo(str(scanned), err=True)
