"""`redrive run`: runs an app on an engine, until it is stopped or has nothing left to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypedDict

import typer
from rich.console import Console

from redrive.cli.options import Bootstrap, LogsAs, MetricsPort, RunsOn, Target
from redrive.cli.output import console_for, say_error
from redrive.cli.spark_process import (
    ON_SPARK,
    SparkLogLevel,
    beside,
    ended,
    require_spark,
    start_spark,
)
from redrive.cli.stopping import Stopping
from redrive.cli.view import steps, summary, view
from redrive.config import SettingsArguments
from redrive.durations import milliseconds
from redrive.engines.words import From, Until
from redrive.engines.worker.options import GroupProtocol
from redrive.engines.worker.options import Options as WorkerOptions
from redrive.errors import ConfigurationError, RedriveError
from redrive.logs import LogLevel, LogOptions, log_to_stderr
from redrive.serving import served
from redrive.tuning import MAX_BYTES_IN_FLIGHT, MAX_IN_FLIGHT

if TYPE_CHECKING:
    from redrive.engines.spark.queries import Handle

_SHOW_EVERY = 0.25
_ON_THE_WORKER: Final = "Only with --engine worker"


class Around(NamedTuple):
    """The run's environment: Spark's master, the metrics port, and log levels."""

    master: str | None
    spark_log_level: SparkLogLevel
    metrics_port: int | None
    logs: LogOptions


class Options(TypedDict):
    """How to run it; settings are separate."""

    start_from: From
    until: Until
    batch_deadline: float
    max_records_per_batch: int
    trigger: float | None
    new_app: bool


def run(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    context: typer.Context,
    target: Target,
    engine: RunsOn = "spark",
    master: Annotated[
        str | None,
        typer.Option(help="Spark's master; this machine by default.", rich_help_panel=ON_SPARK),
    ] = None,
    start_from: Annotated[
        From,
        typer.Option(
            "--from", help="Where to start reading source topics that have no committed offsets."
        ),
    ] = "earliest",
    once: Annotated[
        bool, typer.Option("--once", help="Handle what is there now and due by then, then exit.")
    ] = False,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Exit when there is no lag and nothing is parked.")
    ] = False,
    batch_deadline: Annotated[
        str,
        typer.Option(
            help="How long a batch may run before its tasks stop.", rich_help_panel=ON_SPARK
        ),
    ] = "5s",
    max_records_per_batch: Annotated[
        int,
        typer.Option(min=1, help="Maximum number of records in a batch.", rich_help_panel=ON_SPARK),
    ] = 500_000,
    trigger: Annotated[
        str | None,
        typer.Option(
            help="Minimum time between the starts of two batches; 0s by default.",
            rich_help_panel=ON_SPARK,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    metrics_port: MetricsPort = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A Spark setting; repeatable.", rich_help_panel=ON_SPARK
        ),
    ] = None,
    log_level: Annotated[
        LogLevel,
        typer.Option(help="Minimum level of the log lines of redrive and of your own loggers."),
    ] = "info",
    log_format: LogsAs = "text",
    spark_log_level: Annotated[
        SparkLogLevel,
        typer.Option(help="Minimum level of Spark's own log lines.", rich_help_panel=ON_SPARK),
    ] = "fatal",
    group_protocol: Annotated[
        GroupProtocol,
        typer.Option(help="Kafka group protocol to use.", rich_help_panel=_ON_THE_WORKER),
    ] = "classic",
    instance: Annotated[
        str | None,
        typer.Option(
            help="Name in the group, kept across restarts; the host name and a number by default.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = None,
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            help="Join without a static name, and leave the group when stopped; for pods of a"
            " Deployment, whose names change.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = False,
    max_in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            help="Maximum number of records in flight per partition.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = MAX_IN_FLIGHT,
    max_bytes_in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            help="Maximum bytes in flight per partition, counted from the first incomplete record.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = MAX_BYTES_IN_FLIGHT,
    drain: Annotated[
        str,
        typer.Option(
            help="How long running handlers have to finish when the worker is stopped.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = "30s",
    revoke_wait: Annotated[
        str,
        typer.Option(
            help="How long running handlers have to finish when their partition is revoked.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = "10s",
    new_app: Annotated[
        bool,
        typer.Option("--new-app", help="Confirm that this is a new app, not a renamed one."),
    ] = False,
    one_core: Annotated[
        bool,
        typer.Option(
            "--one-core",
            help="Keep the process on one core: faster if many handler threads mostly wait.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = False,
) -> None:
    """Run an app: handle its source topics, and its delay topics as records become due.

    SIGINT or SIGTERM stops it at the next commit, with exit code 0; a second signal stops it at
    once. Exit code 1 if the run fails, 2 if the configuration is wrong.
    """
    logs = LogOptions(log_level=log_level, log_format=log_format)
    log_to_stderr(**logs)
    _refuse_options(context, ON_SPARK if engine == "worker" else _ON_THE_WORKER)
    if once and until_empty:
        raise ConfigurationError("--once and --until-empty cannot be combined: give one of them")
    until: Until = "once" if once else "empty" if until_empty else "stopped"
    arguments = _arguments(bootstrap, spark_conf or [])
    if engine == "worker":
        worker_options = WorkerOptions(
            start_from=start_from,
            until=until,
            protocol=group_protocol,
            instance=instance,
            dynamic=dynamic,
            max_in_flight=max_in_flight,
            max_bytes_in_flight=max_bytes_in_flight,
            drain=drain,
            revoke_wait=revoke_wait,
            one_core=one_core,
            new_app=new_app,
        )
        from redrive.cli.worker_process import run_worker

        with _told_errors():
            run_worker(target, worker_options, arguments, metrics_port, log_format)
        return
    options = Options(
        start_from=start_from,
        until=until,
        batch_deadline=milliseconds(batch_deadline) / 1000,
        max_records_per_batch=max_records_per_batch,
        trigger=None if trigger is None else milliseconds(trigger) / 1000,
        new_app=new_app,
    )
    with _told_errors():
        _run(target, options, arguments, Around(master, spark_log_level, metrics_port, logs))


def _refuse_options(context: typer.Context, panel: str) -> None:
    """Refuse the given options that are in that panel of the help: they would have no effect."""
    given = [
        option.opts[0]
        for option in context.command.params
        if getattr(option, "rich_help_panel", None) == panel
        and (source := context.get_parameter_source(option.name or "")) is not None
        and source.name != "DEFAULT"
    ]
    if given:
        raise ConfigurationError([f"{one}: {panel.lower()}; drop it" for one in given])


@contextmanager
def _told_errors() -> Iterator[None]:
    """Print the error of a failed run as one sentence, and exit with code 1."""
    try:
        yield
    except ConfigurationError:
        raise
    except RedriveError as error:
        say_error(error)
        raise typer.Exit(1) from None


def _arguments(bootstrap: str | None, spark_conf: list[str]) -> SettingsArguments:
    given: SettingsArguments = {} if bootstrap is None else {"bootstrap": bootstrap}
    # Only up to the first blank or colon: what follows the name may be a secret.
    wrong = [re.split(r"[\s:=]", one)[0] for one in spark_conf if not one.partition("=")[2]]
    if wrong:
        raise ConfigurationError(
            [f"--spark-conf {one}: write name=value, such as spark.ui.port=4050" for one in wrong]
        )
    if spark_conf:
        pairs = (one.partition("=") for one in spark_conf)
        given["spark"] = {name: value for name, _, value in pairs}
    return given


def _run(target: str, options: Options, arguments: SettingsArguments, around: Around) -> None:
    require_spark()
    from redrive.engines import preflight
    from redrive.engines.spark import queries, spark_session

    app, settings = preflight.load(target, "spark", arguments)
    spark_session.check_options(around.master, settings.spark)
    console = console_for(around.logs["log_format"])
    with Stopping() as stopping:
        with steps(console) as say:
            say("checking Kafka")
            preflight.check(app, settings, target, engine="spark", new_app=options["new_app"])
            say("starting Spark")
            frames = app.frame_handler is not None
            spark = start_spark(
                app.name, settings, around.master, around.spark_log_level, connector=frames
            )
        with ended(spark):
            with steps(console) as say:
                page = spark.sparkContext.uiWebUrl
                say(f"starting {app.name} on Spark" + (f"; its UI is at {page}" if page else ""))
                handle = beside(
                    lambda: queries.start(spark, target, **options, **around.logs, **arguments)
                )
            stopping.be_orderly()
            follow(handle, console, stopping, around.metrics_port)
        for line in summary(handle, time()):
            console.print(line, markup=False, soft_wrap=True)


def follow(handle: Handle, console: Console, stopping: Stopping, port: int | None) -> None:
    """Show the run until it ends or is stopped."""
    from redrive.engines.spark.health import checks
    from redrive.engines.spark.metrics import SparkCollector

    with served(port, SparkCollector(handle), checks(handle)) as bound, view(console) as shown:
        if bound is not None:
            console.print(f"metrics: port {bound}, /metrics /live /ready")
        while not handle.await_termination(_SHOW_EVERY):
            shown.show(handle)
            if stopping.wanted:
                console.print("stopping: tasks finish at their next commit")
                handle.stop()
        shown.show(handle)
