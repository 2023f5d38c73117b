"""`redrive run`: an app on an engine, until it is stopped or has nothing more to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypedDict

import typer
from rich.console import Console

from redrive.cli.output import console_for, say_error
from redrive.cli.spark_process import beside, ended, require_spark, start_spark
from redrive.cli.stopping import Stopping
from redrive.cli.view import steps, summary, view
from redrive.config import SettingsArguments, load_settings
from redrive.durations import milliseconds
from redrive.engines.weights import MAX_BYTES_IN_FLIGHT
from redrive.engines.words import From, Until
from redrive.engines.worker.options import MAX_IN_FLIGHT, GroupProtocol
from redrive.engines.worker.options import Options as WorkerOptions
from redrive.errors import ConfigurationError, RedriveError
from redrive.loading import load_app
from redrive.logs import LogFormat, LogLevel, LogOptions, log_to_stderr
from redrive.serving import served

if TYPE_CHECKING:
    from redrive.engines.spark.queries import Handle

Engine = Literal["spark", "worker"]
SparkLogLevel = Literal["off", "fatal", "error", "warn", "info", "debug"]
_SHOW_EVERY = 0.25
_ON_SPARK: Final = "Only with --engine spark"
_ON_THE_WORKER: Final = "Only with --engine worker"


class Around(NamedTuple):
    """What is around the run: Spark's master, the port of the figures, and who logs how much."""

    master: str | None
    spark_log_level: SparkLogLevel
    metrics_port: int | None
    logs: LogOptions


class Options(TypedDict):
    """How to run it; settings are apart from that."""

    start_from: From
    until: Until
    batch_deadline: float
    max_records_per_batch: int
    trigger: float | None


def run(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Such as shop:app.")],
    engine: Annotated[Engine, typer.Option(help="What runs the app.")] = "spark",
    master: Annotated[
        str | None,
        typer.Option(help="Spark's master; this machine by default.", rich_help_panel=_ON_SPARK),
    ] = None,
    start_from: Annotated[
        From,
        typer.Option("--from", help="Where source topics without progress begin."),
    ] = "earliest",
    once: Annotated[
        bool, typer.Option("--once", help="End with what is there now and due by then.")
    ] = False,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is ahead or parked any more.")
    ] = False,
    batch_deadline: Annotated[
        str,
        typer.Option(
            help="How long a batch may last before its tasks end.", rich_help_panel=_ON_SPARK
        ),
    ] = "5s",
    max_records_per_batch: Annotated[
        int,
        typer.Option(
            min=1, help="At most so many records in one batch.", rich_help_panel=_ON_SPARK
        ),
    ] = 500_000,
    trigger: Annotated[
        str | None,
        typer.Option(
            help="Time between the starts of two batches; 0s by default.",
            rich_help_panel=_ON_SPARK,
        ),
    ] = None,
    bootstrap: Annotated[str | None, typer.Option(help="Address of Kafka: host:port.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /metrics, /live and /ready here.")
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A setting of Spark's; repeat.", rich_help_panel=_ON_SPARK
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="How much is logged: by redrive and by your own loggers.")
    ] = "info",
    log_format: Annotated[
        LogFormat, typer.Option(help="Log lines for people, or one JSON object per line.")
    ] = "text",
    spark_log_level: Annotated[
        SparkLogLevel, typer.Option(help="How much Spark itself logs.", rich_help_panel=_ON_SPARK)
    ] = "fatal",
    group_protocol: Annotated[
        GroupProtocol, typer.Option(help="Kafka's group protocol.", rich_help_panel=_ON_THE_WORKER)
    ] = "classic",
    instance: Annotated[
        str | None,
        typer.Option(
            help="Its name in the group, over restarts; this machine's and a number by default.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = None,
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            help="Join without a name and leave the group when stopped; for pods of a"
            " Deployment, whose names change.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = False,
    max_in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            help="At most so many records of a partition in flight.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = MAX_IN_FLIGHT,
    max_bytes_in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            help="The same in bytes, counted from the first that is not complete.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = MAX_BYTES_IN_FLIGHT,
    drain: Annotated[
        str,
        typer.Option(
            help="How long running work may take to end when stopped.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = "30s",
    revoke_wait: Annotated[
        str,
        typer.Option(
            help="The same when a partition of it goes to another worker.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = "10s",
    one_core: Annotated[
        bool,
        typer.Option(
            "--one-core",
            help="Keep to one core; for many threads whose handlers wait.",
            rich_help_panel=_ON_THE_WORKER,
        ),
    ] = False,
) -> None:
    """Run an app: its source topics, and its delay topics as they become due.

    SIGINT or SIGTERM ends it at the next commit, with exit code 0; a second one ends it at once.
    Exit code 1 when the run fails, 2 when the configuration is wrong.
    """
    logs = LogOptions(log_level=log_level, log_format=log_format)
    log_to_stderr(**logs)
    _refuse_options(context, _ON_SPARK if engine == "worker" else _ON_THE_WORKER)
    if once and until_empty:
        raise ConfigurationError("--once and --until-empty exclude each other: give one of them")
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
            drain=milliseconds(drain),
            revoke_wait=milliseconds(revoke_wait),
            one_core=one_core,
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
    )
    with _told_errors():
        _run(target, options, arguments, Around(master, spark_log_level, metrics_port, logs))


def _refuse_options(context: typer.Context, panel: str) -> None:
    """Refuse options that were given and are in that panel of the help: they would do nothing."""
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
    """A run that fails ends with its sentence, and exit code 1."""
    try:
        yield
    except ConfigurationError:
        raise
    except RedriveError as error:
        say_error(error)
        raise typer.Exit(1) from None


def _arguments(bootstrap: str | None, spark_conf: list[str]) -> SettingsArguments:
    given: SettingsArguments = {} if bootstrap is None else {"bootstrap": bootstrap}
    # Up to the first blank or colon only: what follows the name may be a secret.
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
    from redrive.engines.spark import queries

    app = load_app(target)
    app.check("spark")
    settings = load_settings(arguments, app.settings)
    console = console_for(around.logs["log_format"])
    with Stopping() as stopping:
        with steps(console) as say:
            say("looking at Kafka")
            preflight.check(app, settings, target, engine="spark")
            say("starting Spark")
            frames = app.frame_handler is not None
            spark = start_spark(
                app.name, settings, around.master, around.spark_log_level, connector=frames
            )
        with ended(spark):
            with steps(console) as say:
                page = spark.sparkContext.uiWebUrl
                say(f"starting {app.name} on Spark" + (f", whose page is {page}" if page else ""))
                handle = beside(
                    lambda: queries.start(spark, target, **options, **around.logs, **arguments)
                )
            stopping.be_orderly()
            follow(handle, console, stopping, around.metrics_port)
        for line in summary(handle, time()):
            console.print(line, markup=False, soft_wrap=True)


def follow(handle: Handle, console: Console, stopping: Stopping, port: int | None) -> None:
    """Show the run until it has ended, or somebody wants it to."""
    from redrive.engines.spark.health import checks
    from redrive.engines.spark.metrics import SparkCollector

    with served(port, SparkCollector(handle), checks(handle)) as bound, view(console) as shown:
        if bound is not None:
            console.print(f"figures: port {bound}, /metrics /live /ready")
        while not handle.await_termination(_SHOW_EVERY):
            shown.show(handle)
            if stopping.wanted:
                console.print("stopping: tasks end at their next commit")
                handle.stop()
        shown.show(handle)
