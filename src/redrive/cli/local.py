"""`redrive local`: the embedded Kafka and PostgreSQL."""

from __future__ import annotations

import typer

app = typer.Typer(help="A real Kafka and PostgreSQL on this machine.", no_args_is_help=True)
