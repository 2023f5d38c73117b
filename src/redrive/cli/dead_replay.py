"""`redrive dead replay | discard | jobs`: what changes something."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli import dead_view
from redrive.cli.dead_options import (
    On,
    Whose,
    of_letters,
    on_engine,
    on_engine_of_topic,
)
from redrive.cli.dead_spark import shards
from redrive.cli.editing import NewValue, can_ask, edited, kept_on_error, read_value
from redrive.cli.options import AsJson, By, Reason, Yes
from redrive.cli.progress import progress
from redrive.cli.stopping import Stopping
from redrive.dead import open_operator
from redrive.dead.filters import Filter
from redrive.dead.operator import Operator, ReplayOptions, check_shards
from redrive.dead.pace import ramp_of, rate_of, share_of
from redrive.dead.scan import Planned
from redrive.errors import ConfigurationError
from redrive.tuning import DEAD_LOOK_EVERY

if TYPE_CHECKING:
    from redrive.dead.operations import Operation
    from redrive.dead.selection import ReplayPlan
    from redrive.dead.watching import Fate, Watch


@on_engine
def replay(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    which: Filter,
    on: On,
    fix: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="A function that returns a new value for each record."
        ),
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", help="Change the value of one letter in $EDITOR.")
    ] = False,
    value: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new value for one letter.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="At most this many letters per time: 200/s, 30/m; 200 means 200/s."),
    ] = None,
    ramp: Annotated[
        str | None,
        typer.Option(
            help="Replay this many first, then this many more once they are handled: 1,10,100."
        ),
    ] = None,
    stop_above: Annotated[
        str | None, typer.Option(help="Stop when more than this share fails again: 5%.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also letters that were replayed before.")
    ] = False,
    to: Annotated[
        list[str] | None,
        typer.Option(help="For other consumers' letters: a topic they may go to; repeatable."),
    ] = None,
    reason: Reason = "",
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Replay letters: only the app that failed gets them again.

    Without --yes nothing is written. Exit code 1 if it was paused, or too many failed again.
    """
    if to and whose.app is not None and whose.topic is None:
        raise ConfigurationError(
            "--to: letters of an app go back to that app, wherever it reads them; it is for letters"
            " of others, whose dead topic --topic names: drop it"
        )
    options = ReplayOptions(
        fix=fix,
        rate=rate_of(rate),
        ramp=ramp_of(ramp),
        stop_above=share_of(stop_above),
        again=again,
        to=tuple(to or ()),
    )
    if on.engine == "spark":
        check_shards(options)
    operator = _operator(whose, by)
    new = _new_value(whose, which, options, edit=edit, file=value)
    if new is not None:
        which = replace(which, places=(new.letter.place,))
        options = replace(options, edited=new.value)
    with kept_on_error(new if edit else None):
        if new is not None and yes:
            dead_view.difference(new.letter, new.value, whose.app, as_json=as_json)
        plan = None if yes else operator.plan(which, options)
        if plan is not None and not _agreed(plan, new if edit else None, as_json):
            return
        with shards(whose, on) as run_shards:
            done = in_sight(
                lambda **how: operator.replay(
                    which,
                    options,
                    why=reason,
                    run_shards=run_shards,
                    planned=_planned(plan, new),
                    **how,
                ),
                as_json=as_json,
            )
    if edit and new is not None and done.status == "done" and not done.done:
        new.keep()
    ended(done, whose.named, as_json=as_json)


@of_letters
def discard(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    which: Filter,
    reason: Annotated[str, typer.Option(help="Why they need not be handled.")],
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Mark letters as discarded. Nothing is deleted from Kafka.

    Without --yes nothing is written. Exit code 1 if it was paused.
    """
    operator = _operator(whose, by)
    if yes:
        done = in_sight(lambda **how: operator.discard(which, reason, **how), as_json=as_json)
        ended(done, whose.named, as_json=as_json)
        return
    plan = operator.plan_discard(which)
    if as_json:
        typer.echo(json.dumps(plan.as_data(), indent=2))
    else:
        dead_view.plan(plan, verb="discarded")


@on_engine_of_topic
def jobs(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    on: On,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Continue this operation.")
    ] = None,
    pause: Annotated[str | None, typer.Option(metavar="ID", help="Pause this operation.")] = None,
    cancel: Annotated[str | None, typer.Option(metavar="ID", help="End this operation.")] = None,
    watch: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Say what became of its copies, until all are settled."),
    ] = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """List what was done about letters; resume, pause, cancel or watch it."""
    if sum(each is not None for each in (resume, pause, cancel, watch)) > 1:
        raise ConfigurationError("give one of --resume, --pause, --cancel and --watch")
    operator = _operator(whose, by)
    if resume is not None:
        name = resume
        with shards(whose, on) as run_shards:
            done = in_sight(
                lambda **how: operator.resume(name, run_shards=run_shards, **how), as_json=as_json
            )
        ended(whose.letters().told(done), whose.named, as_json=as_json)
    elif pause is not None or cancel is not None:
        done = operator.pause(pause) if pause is not None else operator.cancel(cancel or "")
        dead_view.operation(whose.letters().told(done), whose.named, as_json=as_json)
    elif watch is not None:
        follow(*operator.watch(watch), as_json=as_json)
    else:
        found = map(whose.letters().told, operator.operations())
        dead_view.operations([*found], as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add these commands to those that only look."""
    for command in (replay, discard, jobs):
        app.command()(command)


def _operator(whose: Whose, by: str | None) -> Operator:
    return open_operator(whose.letters(), whose.settings, by or getpass.getuser())


def _new_value(
    whose: Whose, which: Filter, options: ReplayOptions, *, edit: bool, file: Path | None
) -> NewValue | None:
    """The one letter that is meant, with its new value.

    To be named by its place: another that dies while the editor is open may fit as well.
    """
    if not edit and file is None:
        return None
    if edit + (file is not None) + (options.fix is not None) > 1:
        raise ConfigurationError("give one of --edit, --value and --fix")
    letters = whose.letters()
    topic_id = letters.log.topic_id(letters.topic)  # before its offsets
    found, _ = letters.some(which, limit=2)
    if len(found) != 1:
        how_many = "more than one letter fits" if found else "no letter fits"
        name = "--edit" if edit else "--value"
        raise ConfigurationError(f"{name} is for one letter, but {how_many}: name it with --at")
    [(letter, _, _)] = found
    value = edited(letter, whose.app) if file is None else read_value(file, letter)
    return NewValue(letter, value, topic_id)


def _planned(plan: ReplayPlan | None, new: NewValue | None) -> Planned | None:
    """What somebody has seen before it is done: a dry run, or a letter in an editor."""
    if plan is None:
        return None if new is None else Planned(new.topic_id)
    return plan.planned if new is None else plan.planned._replace(topic_id=new.topic_id)


def _agreed(plan: ReplayPlan, edited_value: NewValue | None, as_json: bool) -> bool:
    """Show what would be done; whether it is to be done, where somebody can be asked."""
    asks = edited_value is not None and plan.letters > 0 and not as_json and can_ask()
    if as_json:
        typer.echo(json.dumps(plan.as_data(), indent=2))
    else:
        dead_view.plan(plan, asks=asks)
    if asks and typer.confirm("Replay it?"):
        return True
    if edited_value is not None:
        edited_value.keep()
    return False


def follow(
    operation: Operation,
    watch: Watch,
    *,
    as_json: bool,
    wait: Callable[[], None] = lambda: sleep(DEAD_LOOK_EVERY),
) -> None:
    """Say what becomes of copies until all are handled or dead; the exit code is 0 if none died."""
    said = ""

    def show(found: Fate) -> None:
        nonlocal said
        before, said = said, f"{operation.id}: {dead_view.fate(operation.done, found)}"
        if said != before and not as_json:
            typer.echo(said)

    with Stopping() as stopping:
        stopping.be_orderly()
        fate = watch.follow(show, lambda: stopping.wanted, wait)
    if as_json:
        found = {"operation": operation.id, "sent": operation.done, **fate._asdict()}
        typer.echo(json.dumps({**found, "settled": fate.settled}, indent=2))
    raise typer.Exit(0 if fate.settled and not fate.dead else 1)


def in_sight(
    run: Callable[..., Operation], *, as_json: bool, begins_late: bool = False
) -> Operation:
    """Run an operation in sight; the first signal pauses it, the second ends the process.

    One that `begins_late` waits for others first: until it shows that it has begun there is nothing
    to pause, and the first signal ends the command.
    """
    with Stopping() as stopping, progress(as_json=as_json) as show:

        def begun(operation: Operation, fate: Fate | None) -> None:
            stopping.be_orderly()
            show(operation.done, operation.left, _said(operation, fate), name=operation.id)

        if not begins_late:
            stopping.be_orderly()
        try:
            return run(progress=begun, stopping=lambda: stopping.wanted)
        except SystemExit:
            raise SystemExit(1) from None  # nothing was done


def _said(operation: Operation, fate: Fate | None) -> str:
    done = operation.done
    return f"{done:,} {operation.outcome}" if fate is None else dead_view.fate(done, fate)


def ended(operation: Operation, named: str, *, as_json: bool) -> None:
    """Say how an operation ended, and end the command by that."""
    dead_view.operation(operation, named, as_json=as_json)
    raise typer.Exit(0 if operation.status == "done" and not operation.too_many_failed else 1)
