"""The `redrive` command: one file per verb."""

from __future__ import annotations

import sys

import typer

from redrive.cli import (
    dead,
    dead_replay,
    dead_try,
    demo,
    doctor,
    ledger,
    local,
    parked,
    prove,
    relay,
    run,
    topics,
)
from redrive.cli.output import say_error
from redrive.errors import RedriveError

app = typer.Typer(
    name="redrive",
    help="Reliable Kafka consumption in Python, with or without Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(local.app, name="local")
app.add_typer(ledger.app, name="ledger")
app.add_typer(dead.app, name="dead")
dead_try.add_to(dead.app)
dead_replay.add_to(dead.app)
app.command()(run.run)
app.command()(relay.relay)
app.command()(prove.prove)
app.command()(topics.topics)
app.command()(demo.demo)
app.command()(doctor.doctor)
app.command()(parked.parked)


def main() -> None:
    """Run the command; redrive's own errors are shown as one sentence, not a stack trace."""
    try:
        app()
    except RedriveError as error:
        say_error(error)
        sys.exit(2)
