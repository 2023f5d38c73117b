"""`redrive dead replay | discard | jobs`: what changes something."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn

from redrive.cli import dead_view
from redrive.cli.dead_options import AsJson, Whose, of_letters, of_topic
from redrive.cli.editing import edited
from redrive.cli.stopping import Stopping
from redrive.dead import open_operator
from redrive.dead.filters import Filter
from redrive.dead.operator import Operator, Options
from redrive.dead.pace import ramp_of, rate_of, share_of
from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from redrive.dead.operations import Operation
    from redrive.dead.watching import Fate

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without it, only say what would be done.")]
By = Annotated[str | None, typer.Option(help="In whose name; this user by default.")]


@of_letters
def replay(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    which: Filter,
    fix: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Makes a new value of each record."),
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", help="Change the value of one letter in $EDITOR.")
    ] = False,
    rate: Annotated[str | None, typer.Option(help="At most so many: 200/s.")] = None,
    ramp: Annotated[
        str | None, typer.Option(help="So many first, then so many more: 1,10,100.")
    ] = None,
    stop_above: Annotated[
        str | None, typer.Option(help="Stop when more than this share fails again: 5%.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also letters that were replayed before.")
    ] = False,
    to: Annotated[
        list[str] | None,
        typer.Option(help="A topic that letters of others may go to; repeatable."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drive letters again: to the app that failed, and to nobody else.

    Without --yes nothing is written. Exit code 1 if it was paused, or stopped by itself.
    """
    options = Options(
        fix=fix,
        rate=rate_of(rate),
        ramp=ramp_of(ramp),
        stop_above=share_of(stop_above),
        again=again,
        to=tuple(to or ()),
    )
    operator = _operator(whose, by)
    if edit:
        options = _edited(whose, which, options)
    if not yes:
        plan = operator.plan(which, options)
        if as_json:
            typer.echo(json.dumps(plan.as_data(), indent=2))
        else:
            dead_view.plan(plan)
        return
    _ended(
        _run(lambda **how: operator.replay(which, options, why=reason, **how), as_json=as_json),
        as_json=as_json,
    )


@of_letters
def discard(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    which: Filter,
    reason: Annotated[str, typer.Option(help="Why they need not be handled.")],
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Mark letters as not to be handled. Nothing is removed from the log."""
    operator = _operator(whose, by)
    if yes:
        _ended(operator.discard(which, reason), as_json=as_json)
        return
    plan = operator.plan_discard(which)
    if as_json:
        typer.echo(json.dumps(plan.as_data(), indent=2))
    else:
        dead_view.plan(plan, verb="discarded")


@of_topic
def jobs(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    whose: Whose,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Continue this operation.")
    ] = None,
    pause: Annotated[str | None, typer.Option(metavar="ID", help="Pause this operation.")] = None,
    cancel: Annotated[str | None, typer.Option(metavar="ID", help="End this operation.")] = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """List what was done about letters; resume, pause or cancel it."""
    if sum(each is not None for each in (resume, pause, cancel)) > 1:
        raise ConfigurationError("give one of --resume, --pause and --cancel")
    operator = _operator(whose, by)
    if resume is not None:
        name = resume
        done = _run(lambda **how: operator.resume(name, **how), as_json=as_json)
        _ended(done, as_json=as_json)
    elif pause is not None or cancel is not None:
        done = operator.pause(pause) if pause is not None else operator.cancel(cancel or "")
        dead_view.operation(done, as_json=as_json)
    else:
        dead_view.operations(operator.operations(), as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add these commands to those that only look."""
    for command in (replay, discard, jobs):
        app.command()(command)


def _operator(whose: Whose, by: str | None) -> Operator:
    return open_operator(whose.letters(), whose.settings, by or getpass.getuser())


def _edited(whose: Whose, which: Filter, options: Options) -> Options:
    """The options with the new value of the one letter that is meant."""
    found, _ = whose.letters().some(which, limit=2)
    if len(found) != 1:
        how_many = "more than one letter fits" if found else "no letter fits"
        raise ConfigurationError(f"--edit is for one letter, but {how_many}: name it with --at")
    if options.fix is not None:
        raise ConfigurationError("give --edit or --fix, not both")
    [(letter, _, _)] = found
    return Options(
        edited=edited(letter, whose.app),
        again=options.again,
        to=options.to,
    )


def _run(run: Callable[..., Operation], *, as_json: bool) -> Operation:
    """Run an operation in sight; the first signal pauses it, the second ends the process."""
    console = Console(highlight=False, stderr=as_json)
    with Stopping() as stopping, _bar(console) as show:
        stopping.be_orderly()
        return run(progress=show, stopping=lambda: stopping.wanted)


def _bar(console: Console) -> AbstractContextManager[Callable[[Operation, Fate | None], None]]:
    if not console.is_terminal:
        return nullcontext(lambda _operation, _fate: None)
    return _Bar(console)


class _Bar(AbstractContextManager[Any]):
    """A progress bar: over what there is to look at, with what became of the copies."""

    def __init__(self, console: Console) -> None:
        columns = (*Progress.get_default_columns(), TextColumn("{task.fields[said]}"))
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("replaying", total=None, said="")

    def __enter__(self) -> Callable[[Operation, Fate | None], None]:
        self._progress.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _show(self, operation: Operation, fate: Fate | None) -> None:
        done, left = operation.done, operation.left
        said = f"{done:,} sent" if fate is None else dead_view.fate(done, fate)
        self._progress.update(self._task, total=done + left, completed=done, said=said)


def _ended(operation: Operation, *, as_json: bool) -> None:
    dead_view.operation(operation, as_json=as_json)
    raise typer.Exit(0 if operation.status == "done" else 1)
