"""`redrive demo`: the update-before-create story, which explains itself as it runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from redrive.cli import demo_simulated


def demo(
    simulated: Annotated[
        bool,
        typer.Option("--simulated", help="Run in virtual time, in memory: no Java, no waiting."),
    ] = False,
) -> None:
    """Play the update-before-create story on Spark, with its own Kafka and PostgreSQL.

    Takes a minute or two and leaves nothing behind. Exit code 1 if a record was lost.
    """
    console = Console(highlight=False, soft_wrap=True)
    if simulated:
        well = demo_simulated.tell(console)
    else:
        from redrive.cli import demo_live

        well = demo_live.tell(console)
    raise typer.Exit(0 if well else 1)
