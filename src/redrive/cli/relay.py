"""`redrive relay`: publishes what an app has written to the outbox."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from redrive.cli.options import Bootstrap, Database, LogsAs, MetricsPort, Target
from redrive.cli.output import console_for, say_error
from redrive.cli.stopping import Stopping
from redrive.config import Settings, addresses, load_settings
from redrive.delivery.equipping import require_psycopg
from redrive.durations import milliseconds
from redrive.errors import ConfigurationError, LedgerError
from redrive.loading import load_app
from redrive.logs import LogLevel, log_to_stderr
from redrive.numbers import counted


def relay(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    target: Target,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Exit when nothing is left to publish.")
    ] = False,
    batch: Annotated[
        int, typer.Option(min=1, help="Rows per transaction; a crash repeats at most this many.")
    ] = 20_000,
    lease: Annotated[
        str, typer.Option(help="How long it may be silent before other relays take over its work.")
    ] = "20s",
    bootstrap: Bootstrap = None,
    database: Database = None,
    metrics_port: MetricsPort = None,
    log_level: Annotated[LogLevel, typer.Option(help="Minimum level of the log lines.")] = "info",
    log_format: LogsAs = "text",
) -> None:
    """Publish an app's outbox to Kafka; several relays can run and share the work.

    SIGINT or SIGTERM stops it after the current batch, with exit code 0; a second signal stops it
    at once. With --until-empty, exit code 1 if Kafka refuses what is left.
    """
    log_to_stderr(log_level, log_format)
    require_psycopg()
    seconds = milliseconds(lease) / 1000
    if seconds < 2:
        raise ConfigurationError(f"--lease is {lease}: give at least 2s")
    app = load_app(target)
    settings = load_settings(addresses(bootstrap, database), app.settings)
    options = _Options(batch, seconds, metrics_port, console_for(log_format))
    _run(app.name, settings, options, until_empty=until_empty)


class _Options(NamedTuple):
    batch: int
    lease: float
    port: int | None
    console: Console


def _run(app: str, settings: Settings, options: _Options, *, until_empty: bool) -> None:
    from redrive.ledger.relay import Relay
    from redrive.ledger.relay_metrics import RelayCollector, checks
    from redrive.processing.execution.collector import tune_collector
    from redrive.serving import served

    batch, lease_seconds, port, console = options
    settings.dsn()
    settings.servers()
    with Stopping() as stopping:
        relay = Relay(
            app,
            settings,
            stopping=lambda: stopping.wanted,
            batch=batch,
            lease_seconds=lease_seconds,
        )
        stopping.be_orderly()
        tune_collector()
        with served(port, RelayCollector(relay), checks(relay)) as bound:
            if bound is not None:
                console.print(f"metrics: port {bound}, /metrics /live /ready")
            console.print(f"publishing the outbox of {app}")
            try:
                relay.run(until_empty=until_empty)
            except LedgerError as error:
                say_error(error)
                raise typer.Exit(1) from None
        console.print(f"published {counted(sum(relay.figures.published.values()), 'row')}")
    if until_empty and not stopping.wanted and relay.held_back.reasons():
        raise typer.Exit(1)
