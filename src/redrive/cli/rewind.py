"""`redrive rewind`: handle old records again, on purpose."""

from __future__ import annotations

import getpass
import json
from typing import Annotated

import typer

from redrive.cli.dead_replay import ended, in_sight
from redrive.cli.options import AsJson, Bootstrap, By, Database, Reason, Target, Yes
from redrive.cli.output import terminal
from redrive.config import addresses, load_settings
from redrive.dead.showing import printable
from redrive.errors import ConfigurationError
from redrive.loading import load_app
from redrive.numbers import counted
from redrive.rewind import RewindPlan, Where, open_rewinder
from redrive.rewind.targets import time_of


def rewind(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    target: Target,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Rewind to this time: 2026-11-18T03:00, UTC unless it has a zone."
        ),
    ] = None,
    to_offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE", help="Rewind a partition to this offset: orders[0]@17; repeatable."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="With --to-time: only this source topic; repeatable."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Only records with this key: writes copies, progress stays; repeatable."),
    ] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Make the inbox forget these records, so that they are not dropped as duplicates.",
        ),
    ] = False,
    resume: Annotated[str | None, typer.Option(metavar="ID", help="Continue this rewind.")] = None,
    reason: Reason = "",
    by: By = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, as without --yes.")
    ] = False,
    bootstrap: Bootstrap = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Handle old records again: move the app's progress back, or write copies for some keys.

    Without --yes nothing is written. Exit code 1 if it was paused.
    """
    app = load_app(target)
    settings = load_settings(addresses(bootstrap, database), app.settings)
    settings.servers()
    rewinder = open_rewinder(app, settings, by or getpass.getuser())
    if resume is not None:
        name = resume
        done = in_sight(lambda **how: rewinder.resume(name, **how), as_json=as_json)
        ended(done, target, as_json=as_json)
        return
    if yes and dry_run:
        raise ConfigurationError("give --yes or --dry-run, not both")
    where = Where(
        time=None if to_time is None else time_of(to_time),
        offsets=tuple(to_offset or ()),
        topics=tuple(topic or ()),
    )
    keys = tuple(key or ())
    if not yes:
        _show(rewinder.plan(where, keys=keys, forget=forget), as_json=as_json)
        return
    done = in_sight(
        lambda **how: rewinder.rewind(where, keys=keys, forget=forget, why=reason, **how),
        as_json=as_json,
        begins_late=True,
    )
    ended(done, target, as_json=as_json)


def _show(plan: RewindPlan, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(plan.as_data(), indent=2))
        return
    console = terminal()
    for said in plan.sentences():
        console.print(printable(said), markup=False, soft_wrap=True)
    console.print(
        f"{counted(plan.handled, 'record')} would be handled again; nothing was written: add --yes"
        " to do it",
        markup=False,
        soft_wrap=True,
    )
