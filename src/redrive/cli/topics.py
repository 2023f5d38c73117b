"""`redrive topics`: shows what an app's topics are and should be, and fixes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape
from rich.table import Table

from redrive.app import App
from redrive.cli.options import AsJson, Bootstrap, Outage, Target
from redrive.cli.output import terminal
from redrive.config import SettingsArguments, load_settings
from redrive.durations import milliseconds
from redrive.errors import RedriveError
from redrive.guarantees import GUARANTEES
from redrive.loading import load_app
from redrive.permissions import Purpose, kafka_acls, permissions
from redrive.ports import Topics, TopicState
from redrive.topics import (
    UNSEEN,
    Fix,
    Plan,
    TopicPlan,
    all_topic_names,
    apply,
    plan_topics,
)

Applied = Sequence[tuple[Fix, RedriveError | None]]


def topics(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    target: Target,
    do_apply: Annotated[
        bool, typer.Option("--apply", help="Create and fix whatever can be changed safely.")
    ] = False,
    create_sources: Annotated[
        bool,
        typer.Option("--create-sources", help="With --apply: create missing source topics, too."),
    ] = False,
    outage: Outage = "7d",
    acls: Annotated[
        bool, typer.Option("--acls", help="Print the permissions to grant on a secured Kafka.")
    ] = False,
    user: Annotated[
        str | None, typer.Option(help="With --acls: who gets them; security.user by default.")
    ] = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Show which topics exist, are missing or are misconfigured.

    Exit code 0 if all is well (after --apply), 1 if anything is missing or wrong.
    """
    from redrive.engines.left_behind import left_behind, sentence
    from redrive.kafka.admin import Admin
    from redrive.kafka.topic_admin import KafkaTopics

    app = load_app(target)
    given: SettingsArguments = {} if bootstrap is None else {"bootstrap": bootstrap}
    settings = load_settings(given, app.settings)
    if acls:
        for line in grants(app, user or settings.security.user or "USER"):
            typer.echo(line)
        return
    admin = Admin(settings)
    port = KafkaTopics(settings, admin=admin)
    plan, applied = look(
        app,
        port,
        outage=milliseconds(outage),
        do_apply=do_apply,
        create_sources=create_sources,
    )
    left = left_behind(app, settings, admin)
    if as_json:
        typer.echo(json.dumps({**as_data(plan, applied), "left_behind": left}, indent=2))
    else:
        _show(plan, applied, [sentence(app, *each) for each in left.items()])
    raise typer.Exit(0 if plan.ok else 1)


def grants(app: App, user: str) -> Iterator[str]:
    """The commands that grant a user everything that this app may need, by purpose."""
    for purpose in get_args(Purpose):
        if purpose == "relay" and not GUARANTEES[app.delivery].outbox:
            continue
        yield f"# redrive {purpose}"
        needed = permissions(app, purpose)
        yield from (f"{_ACLS_TOOL} {one}" for one in kafka_acls(needed, user))


_ACLS_TOOL = 'kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config admin.properties'


def look(
    app: App, port: Topics, *, outage: int, do_apply: bool = False, create_sources: bool = False
) -> tuple[Plan, Applied]:
    """The final plan, and what was applied on the way."""
    applied: list[tuple[Fix, RedriveError | None]] = []
    plan = plan_topics(app, _described(app, port), outage=outage, create_sources=create_sources)
    # At most twice: once the sources exist, the app's own topics may need more.
    for _ in range(2):
        if not (do_apply and plan.fixes):
            break
        done = list(apply(plan, port))
        applied += done
        plan = plan_topics(app, _described(app, port), outage=outage, create_sources=create_sources)
        if all(error is not None for _, error in done):
            break
    return plan, applied


def _described(app: App, port: Topics) -> dict[str, TopicState]:
    """The app's topics; without the one that only operators need, if this user may not see it."""
    from redrive.kafka.errors import NotAllowedError

    try:
        return port.describe(all_topic_names(app))
    except NotAllowedError:
        others = [name for name in all_topic_names(app) if name != app.state_topic]
        return {**port.describe(others), app.state_topic: UNSEEN}


def as_data(plan: Plan, applied: Applied = ()) -> dict[str, Any]:
    """The same as the table, as data for JSON."""
    return {
        "app": plan.app,
        "ok": plan.ok,
        "topics": [_topic_data(topic) for topic in plan.topics],
        "undeclared": list(plan.undeclared),
        "applied": [
            {"action": str(fix), "error": None if error is None else str(error)}
            for fix, error in applied
        ],
    }


def _topic_data(topic: TopicPlan) -> dict[str, Any]:
    return {
        "name": topic.name,
        "role": topic.role,
        "exists": topic.state is not None,
        "partitions": None if topic.state is None else topic.state.partitions,
        "replication": None if topic.state is None else topic.state.replication,
        "problems": [
            {
                "weight": problem.weight,
                "text": problem.text,
                "fix": None if problem.fix is None else str(problem.fix),
            }
            for problem in topic.problems
        ],
    }


def _show(plan: Plan, applied: Applied, left: Iterable[str]) -> None:
    console = terminal()
    for fix, error in applied:
        if error is None:
            console.print(f"[green]done[/]    {escape(str(fix))}", soft_wrap=True)
        else:
            console.print(f"[red]failed[/]  {escape(f'{fix}: {error}')}", soft_wrap=True)
    if console.is_terminal:
        console.print(table(plan))
    else:
        for topic in plan.topics:
            for line in _lines(topic):
                console.print(f"{topic.name}: {line}", markup=False, soft_wrap=True)
    if plan.undeclared:
        console.print(undeclared(plan), markup=False, soft_wrap=True)
    for each in left:
        console.print(each, markup=False, soft_wrap=True)
    console.print(_last_word(plan), soft_wrap=True)


def undeclared(plan: Plan) -> str:
    """What cannot be checked, and how it could be."""
    return (
        f"not checked: the topics that the handlers of {', '.join(plan.undeclared)} send to;"
        ' declare them with sends=, as in @app.handler(..., sends="invoices")'
    )


def table(plan: Plan) -> Table:
    """The plan for people at a terminal."""
    shown = Table(title=f"topics of {plan.app}", title_justify="left")
    for column in ("topic", "is", "partitions", "what"):
        shown.add_column(column, overflow="fold")
    for topic in plan.topics:
        bad = any(problem.weight == "wrong" for problem in topic.problems)
        colour = "red" if bad else "yellow" if topic.problems else "green"
        partitions = str(topic.state.partitions or "-") if topic.state else "-"
        what = escape("\n".join(_lines(topic)))
        shown.add_row(escape(topic.name), topic.role, partitions, f"[{colour}]{what}[/]")
    return shown


def _lines(topic: TopicPlan) -> list[str]:
    if not topic.problems:
        return ["ok"]
    return [
        f"{'note: ' if problem.weight == 'note' else ''}{problem.text}"
        f"{'' if problem.fix is None else f' (--apply: {problem.fix})'}"
        for problem in topic.problems
    ]


def _last_word(plan: Plan) -> str:
    if plan.ok and any(problem.hidden for problem in plan.problems):
        return "Nothing is wrong, as far as this user is allowed to see."
    if plan.ok:
        return "[green]All topics are set up correctly.[/]"
    if plan.fixes:
        return "[red]Something is missing or wrong;[/] --apply fixes what can be changed safely."
    return "[red]Something is missing or wrong, and has to be fixed by hand.[/]"
