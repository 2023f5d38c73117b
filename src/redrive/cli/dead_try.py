"""`redrive dead try`: which letters would pass now, without effects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from redrive.cli import dead_view
from redrive.cli.dead_options import Whose, of_letters
from redrive.cli.options import AsJson
from redrive.cli.progress import progress
from redrive.dead.filters import Filter
from redrive.dead.operator import fix_named
from redrive.dead.trying import WOULD_PASS, Trials, Trying
from redrive.errors import ConfigurationError
from redrive.loading import load_object
from redrive.numbers import counted


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("try")(try_)


@of_letters
def try_(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    which: Filter,
    fix: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="A function that returns a new value for each record."
        ),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A dict of stand-ins for the app's resources."),
    ] = None,
    show_sends: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Show this many of the messages that each group would send."
        ),
    ] = 0,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Give a letter up after this long; by default its handler's timeout, else 30s.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the app's current code on letters, without effects.

    Sends are collected, ctx.db is rolled back. Exit code 1 if some would not pass.
    """
    given = None if resources is None else load_object(resources, "resources")
    if given is not None and not isinstance(given, Mapping):
        raise ConfigurationError(f"{resources} is not a dict of resources by name")
    database = None if whose.settings.database is None else whose.settings.dsn()
    trying = Trying(
        whose.letters(),
        fix=fix_named(fix),
        resources=given,
        database=database,
        show_sends=show_sends,
        timeout=timeout,
    )
    with progress(as_json=as_json) as show:
        trials = trying.run(
            which, progress=lambda now: show(now.scanned.looked_at, now.scanned.left, _said(now))
        )
    if as_json:
        typer.echo(json.dumps(trials.as_data(), indent=2))
    else:
        dead_view.trials(trials)
    raise typer.Exit(0 if trials.total.keys() <= {*WOULD_PASS} else 1)


def _said(trials: Trials) -> str:
    tried = trials.total.total()
    bad = tried - sum(trials.total[each] for each in WOULD_PASS)
    return f"{counted(tried, 'letter')} tried, {bad:,} would not pass"
