"""`redrive local`: the embedded Kafka and PostgreSQL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from redrive.local.plan import Plan

# What runs the stack is imported by each verb: `redrive --help` must work without the extra.

app = typer.Typer(help="A real Kafka and PostgreSQL on this machine.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ShowPassword = Annotated[
    bool, typer.Option("--show-password", help="Put the password itself into the DSN.")
]


@app.command()
def up(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    brokers: Annotated[int | None, typer.Option(help="How many brokers; 1 unless said.")] = None,
    kafka_port: Annotated[int | None, typer.Option(help="Port of the first broker.")] = None,
    postgres_port: Annotated[int | None, typer.Option(help="Port of PostgreSQL.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw existing data away.")] = False,
    as_json: AsJson = False,
    show_password: ShowPassword = False,
) -> None:
    """Start what does not run yet, and say where it is."""
    from redrive.local import folders, lifecycle
    from redrive.local.plan import Wish

    wish = Wish(brokers, kafka_port, postgres_port)
    plan = lifecycle.up(folders.home(), wish, fresh=fresh).plan
    answer = _describe(plan, show_password)
    typer.echo(json.dumps(answer, indent=2) if as_json else _next_steps(answer))


@app.command()
def down(
    delete: Annotated[bool, typer.Option("--delete", help="Throw the data away, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """End exactly what `up` started; the data stays."""
    from redrive.local import folders, lifecycle

    ended = lifecycle.down(folders.home(), delete=delete)
    if as_json:
        typer.echo(json.dumps({"ended": ended, "deleted": delete}))
    else:
        typer.echo(f"Ended {', '.join(ended)}." if ended else "Nothing was running.")


@app.command()
def status(as_json: AsJson = False, show_password: ShowPassword = False) -> None:
    """Say what runs; exit code 0 when all of it does, else 1."""
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
    return {
        "up": all(member.running and member.ready() for member in plan.members()),
        "bootstrap": plan.bootstrap,
        "database": plan.postgres().dsn(with_password=show_password),
        "members": members,
        "folder": str(plan.local),
    }


def _next_steps(answer: dict[str, Any]) -> str:
    return (
        f"{_overview(answer)}\n\n"
        f"export REDRIVE_BOOTSTRAP='{answer['bootstrap']}'\n"
        f"export REDRIVE_DATABASE='{answer['database']}'\n\n"
        f"The data is in {answer['folder']}; `redrive local down` ends the processes and keeps it."
    )


def _overview(answer: dict[str, Any]) -> str:
    lines = [
        f"{member['name']:<10} 127.0.0.1:{member['port']}  "
        + (f"pid {member['pid']}" if member["pid"] else "not running")
        for member in answer["members"]
    ]
    return "\n".join(lines) or "No stack here yet; `redrive local up` starts one."
