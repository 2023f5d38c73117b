"""The verbs of the `redrive` command."""

from __future__ import annotations

import typer

from redrive.cli import (
    console,
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
    rewind,
    run,
    topics,
)

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
app.command()(rewind.rewind)
app.command()(console.console)
app.add_typer(parked.app, name="parked")
