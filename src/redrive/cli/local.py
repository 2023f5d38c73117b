"""`redrive local`: the embedded Kafka and PostgreSQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from redrive.cli.options import AsJson
from redrive.errors import ConfigurationError
from redrive.permissions import Purpose

if TYPE_CHECKING:
    from redrive.config import SettingsArguments
    from redrive.local.plan import Plan

# Each verb imports the stack itself: `redrive --help` must work without the extra.

app = typer.Typer(help="Run a real Kafka and PostgreSQL on this machine.", no_args_is_help=True)

ShowPassword = Annotated[
    bool, typer.Option("--show-password", help="Include the password in the DSN.")
]


@app.command()
def up(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    brokers: Annotated[int | None, typer.Option(help="Number of brokers; 1 by default.")] = None,
    kafka_port: Annotated[int | None, typer.Option(help="Port of the first broker.")] = None,
    postgres_port: Annotated[int | None, typer.Option(help="Port of PostgreSQL.")] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Use TLS, users and permissions.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete existing data first.")] = False,
    as_json: AsJson = False,
    show_password: ShowPassword = False,
) -> None:
    """Start whatever is not running yet, and print the addresses."""
    from redrive.local import folders, lifecycle
    from redrive.local.plan import Wish

    wish = Wish(brokers, kafka_port, postgres_port, secure or None)
    plan = lifecycle.up(folders.home(), wish, fresh=fresh).plan
    answer = _describe(plan, show_password)
    typer.echo(json.dumps(answer, indent=2) if as_json else _next_steps(answer))


@app.command()
def user(
    name: Annotated[str, typer.Argument(help="A name for the user.")],
    target: Annotated[
        str | None,
        typer.Option("--for", metavar="MODULE:APP", help="Grant exactly what this app needs."),
    ] = None,
    may: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PURPOSE",
            help=f"With --for: {', '.join(get_args(Purpose))}; run by default; repeatable.",
        ),
    ] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Log in with mutual TLS instead of a password.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a user of a secured stack, with no permissions or those that an app needs."""
    from redrive.loading import load_app
    from redrive.local import folders, lifecycle
    from redrive.local.stacks import Stack
    from redrive.permissions import permissions

    if may and target is None:
        raise ConfigurationError("--may: say of which app, with --for")
    found = None if target is None else load_app(target)
    if wrong := [one for one in may or () if one not in get_args(Purpose)]:
        raise ConfigurationError(
            f"--may {wrong[0]!r} is not known: write one of {', '.join(get_args(Purpose))}"
        )
    purposes: list[Purpose] = may or ["run"]  # type: ignore[assignment]  # -- looked at above
    granted = [each for one in purposes if found for each in permissions(found, one)]
    home = folders.home()
    plan = lifecycle.plan_of(home)
    settings = Stack(plan, home).add_user(name, granted, certificate=certificate)
    answer = {"bootstrap": settings["bootstrap"], "security": _shown(plan, settings)}
    typer.echo(json.dumps(answer, indent=2) if as_json else "\n".join(_exports(answer)))


@app.command()
def down(
    delete: Annotated[bool, typer.Option("--delete", help="Delete the data, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop exactly what `up` started; the data stays."""
    from redrive.local import folders, lifecycle

    ended = lifecycle.down(folders.home(), delete=delete)
    if as_json:
        typer.echo(json.dumps({"ended": ended, "deleted": delete}))
    else:
        typer.echo(f"Stopped {', '.join(ended)}." if ended else "Nothing was running.")


@app.command()
def status(as_json: AsJson = False, show_password: ShowPassword = False) -> None:
    """Show what is running; exit code 0 if everything is, 1 otherwise."""
    from redrive.local import folders, lifecycle
    from redrive.local.plan import Plan

    plan = Plan.load(lifecycle.local_folder(folders.home()))
    answer = _describe(plan, show_password) if plan else {"up": False, "members": []}
    typer.echo(json.dumps(answer, indent=2) if as_json else _overview(answer))
    raise typer.Exit(0 if answer["up"] else 1)


def _describe(plan: Plan, show_password: bool) -> dict[str, Any]:
    members = [
        {"name": member.name, "port": member.port, "pid": member.pid, "log": str(member.log)}
        for member in plan.members()
    ]
    database = plan.postgres().dsn(with_password=show_password)
    answer = {
        "up": all(member.running and member.ready() for member in plan.members()),
        "bootstrap": plan.bootstrap,
        "database": database,
        "members": members,
        "folder": str(plan.local),
    }
    if plan.securing is not None:
        answer["security"] = _shown(plan, {"security": plan.securing.by_password()}, show_password)
    return answer


def _shown(plan: Plan, settings: SettingsArguments, show_password: bool = False) -> dict[str, str]:
    """The security settings, with the password's file instead of the password by default."""
    shown = {name: str(value) for name, value in settings["security"].items()}
    if plan.securing is not None and "password" in shown and not show_password:
        del shown["password"]
        shown["password_file"] = str(plan.securing.password_file(shown["user"]))
    return shown


def _next_steps(answer: dict[str, Any]) -> str:
    return (
        f"{_overview(answer)}\n\n"
        + "\n".join(_exports(answer))
        + (
            f"\n\nThe data is in {answer['folder']}; `redrive local down` stops the processes and"
            " keeps it."
        )
    )


def _exports(answer: dict[str, Any]) -> list[str]:
    """What to export; passwords stay in their files, and out of the terminal."""
    security = dict(answer.get("security", {}))
    password_file = security.pop("password_file", None)
    lines = [
        f"export REDRIVE_{name.upper()}='{answer[name]}'"
        for name in ("bootstrap", "database")
        if name in answer
    ]
    lines += [f"export REDRIVE_SECURITY_{name.upper()}='{security[name]}'" for name in security]
    if password_file:
        lines.append(f"export REDRIVE_SECURITY_PASSWORD=\"$(cat '{password_file}')\"")
    return lines


def _overview(answer: dict[str, Any]) -> str:
    lines = [
        f"{member['name']:<10} 127.0.0.1:{member['port']}  "
        + (f"pid {member['pid']}" if member["pid"] else "not running")
        for member in answer["members"]
    ]
    return "\n".join(lines) or "There is no stack here yet; `redrive local up` starts one."
