"""`redrive parked`: what waits in an app's delay topics, and what operators say about it."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from redrive.cli.dead_options import composed
from redrive.cli.options import AsJson, Bootstrap, By, Reason, Target, Yes
from redrive.cli.output import terminal
from redrive.config import SettingsArguments, load_settings
from redrive.dead import Steering, SteeringPlan, open_steering
from redrive.dead.parked import NO_GROUPS
from redrive.dead.showing import printable
from redrive.durations import text
from redrive.loading import load_app
from redrive.numbers import counted
from redrive.parked_rules import Match, ParkedRule

if TYPE_CHECKING:
    from redrive.dead.parked import Parked

_LISTED = "repeatable"


class _ListByDefault(TyperGroup):
    """`redrive parked shop:app` is `redrive parked list shop:app`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListByDefault,
    help="Parked records: see what waits, hold it, let it run now.",
    no_args_is_help=True,
)


@app.command("list")
def list_(target: Target, bootstrap: Bootstrap = None, as_json: AsJson = False) -> None:
    """Show parked records: how many per delay, when the next is due, and why.

    Also what is held, and which run-now is in progress.
    """
    steering = _whose(target, bootstrap=bootstrap)
    found = steering.parked()
    rules = [steering.told(rule) for rule in steering.rules() if steering.under_way(rule)]
    if as_json:
        data = {
            "parked": [each.as_data() for each in found],
            "rules": [rule.as_data() for rule in rules],
            "left_behind": steering.left_behind(),
        }
        typer.echo(json.dumps(data, indent=2))
        return
    lines = [line for each in found for line in _lines(each, int(time() * 1000))]
    said = [printable(each) for each in [steering.left_behind()] if each]
    _print([*(lines or ["the app has no delay topics"]), *map(_line, rules), *said])


def _whose(target: Target, by: By = None, bootstrap: Bootstrap = None) -> Steering:
    found = load_app(target)
    given: SettingsArguments = {} if bootstrap is None else {"bootstrap": bootstrap}
    return open_steering(found, load_settings(given, found.settings), by or getpass.getuser())


def _which(
    topic: Annotated[
        list[str] | None, typer.Option(help=f"A whole delay topic; {_LISTED}.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help=f"The id of a cause, or its first characters; {_LISTED}."),
    ] = None,
    id: Annotated[  # noqa: A002 -- the name of the option
        list[str] | None, typer.Option(help=f"The record's id; {_LISTED}.")
    ] = None,
) -> Match:
    return Match(topics=tuple(topic or ()), groups=tuple(group or ()), ids=tuple(id or ()))


def _of_parked(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command `(steering, which, ...)` have the options that say whose records, and which."""
    return composed(command, steering=_whose, which=_which)


@app.command("run-now")
@_of_parked
def run_now(
    steering: Steering,
    which: Match,
    reason: Reason = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run parked records now instead of when they are due. This is not an extra attempt.

    Without --yes nothing is written.
    """
    if yes:
        _tell(steering, [steering.run_now(which, reason)], as_json=as_json)
    else:
        _show(steering.plan("run-now", which), "would run now", as_json=as_json)


@app.command()
@_of_parked
def hold(
    steering: Steering,
    which: Match,
    reason: Reason = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Keep matching records parked, including those parked later, until they are released.

    Without --yes nothing is written.
    """
    if yes:
        _tell(steering, [steering.hold(which, reason)], as_json=as_json)
    else:
        _show(steering.plan("hold", which), "would be held", as_json=as_json)


@app.command()
@_of_parked
def release(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    steering: Steering,
    which: Match,
    rule: Annotated[
        list[str] | None,
        typer.Option(help=f"The id of a rule, a hold or a run-now; {_LISTED}."),
    ] = None,
    at_once: Annotated[
        bool,
        typer.Option("--run-now", help="Run the released records now, not when they are next due."),
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End the holds made with exactly these options; without options, all holds.

    Without --yes nothing is written.
    """
    rules = steering.chosen(which, rule or ())
    if yes:
        _tell(steering, steering.release(rules, reason, run_now=at_once), as_json=as_json)
        return
    if not as_json:
        _print(_line(steering.told(each)) for each in rules)
    plan = steering.plan_release(rules, run_now=at_once)
    _show(plan, "would be released", as_json=as_json)


def _tell(steering: Steering, rules: list[ParkedRule], *, as_json: bool) -> None:
    rules = [steering.told(rule) for rule in rules]
    if as_json:
        typer.echo(json.dumps({"rules": [rule.as_data() for rule in rules]}, indent=2))
    else:
        _print(_line(rule) for rule in rules)


def _show(plan: SteeringPlan, verb: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(plan.as_data(), indent=2))
        return
    lines = [f"{topic}: {count:,}" for topic, count in plan.topics.items() if count]
    if plan.kind == "run-now" and plan.moved:
        lines.append(f"{plan.moved:,} that wait before them would make way, and keep their time")
    _print(
        [
            f"{counted(plan.count, 'parked record')} {verb}",
            *lines,
            "nothing was written: add --yes to do it",
        ]
    )


def _print(lines: Any) -> None:
    console = terminal()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _line(rule: ParkedRule) -> str:
    why = f": {printable(rule.why)}" if rule.why else ""
    ended = "" if rule.status == "open" else f" ({printable(rule.said)})"
    about, by = printable(str(rule.match)), printable(rule.by)
    return f"{rule.kind} {rule.id}{ended}: {about}, by {by}{why}"


def _cause(group: str, error: str) -> str:
    """Why records were parked; of those that were replayed, by whom, as they have not failed."""
    return f"{error} {group}" if group in NO_GROUPS else f"{error} (group {group})"


def _lines(found: Parked, now: int) -> list[str]:
    if not found.count:
        return [f"{found.topic}: nothing"]
    seconds = ((found.next_due or 0) - now) // 1000
    due = f"in {text(seconds * 1000)}" if seconds > 0 else "now"
    held = f", {found.held:,} held" if found.held else ""
    to_run = f", {found.to_run:,} to run now" if found.to_run else ""
    return [
        f"{found.topic}: {found.count:,} waiting, next due {due}{held}{to_run}",
        *(
            f"  {count:,} x {printable(_cause(group, error))}"
            for (group, error), count in found.groups.most_common(10)
        ),
    ]
