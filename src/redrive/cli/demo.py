"""`redrive demo`: the update-before-create story, which explains itself as it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli import demo_simulated, output
from redrive.errors import ConfigurationError


def demo(
    simulated: Annotated[
        bool,
        typer.Option("--simulated", help="Run in virtual time, in memory: no Java, no waiting."),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Then show it on a web page, until Ctrl-C.")
    ] = False,
) -> None:
    """Play the update-before-create story on Spark, with its own Kafka and PostgreSQL.

    Takes a minute or two and leaves nothing behind. Exit code 1 if a record was lost.
    """
    terminal = output.terminal(soft_wrap=True)
    if simulated and console:
        raise ConfigurationError("--console shows a real Kafka: leave out --simulated")
    if simulated:
        well = demo_simulated.tell(terminal)
    else:
        from redrive.cli import demo_live

        well = demo_live.tell(terminal, with_console=console)
    raise typer.Exit(0 if well else 1)
