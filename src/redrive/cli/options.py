"""Options that several commands have, each with its one help text."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.choices import Engine
from redrive.logs import LogFormat

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Such as shop:app.")]
Bootstrap = Annotated[str | None, typer.Option(help="Address of Kafka: host:port.")]
Database = Annotated[
    str | None, typer.Option(help="Address of PostgreSQL: postgresql://user@host/name.")
]
RunsOn = Annotated[Engine, typer.Option(help="The engine that runs the app.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]
By = Annotated[
    str | None,
    typer.Option(help="Who does this, for the audit trail; the current user by default."),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Do it. Without --yes, only show what would be done.")
]
Outage = Annotated[str, typer.Option(help="The longest outage that parked records must survive.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=0, max=65_535, help="Serve /metrics, /live and /ready on this port."),
]
LogsAs = Annotated[LogFormat, typer.Option(help="Plain text, or one JSON object per line.")]
