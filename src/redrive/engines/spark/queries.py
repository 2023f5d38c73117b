"""Queries: starts the two lanes of an app as streaming queries."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from redrive import sources
from redrive.clock import WallClock
from redrive.config import Settings, SettingsArguments
from redrive.durations import Duration, milliseconds
from redrive.engines import preflight
from redrive.engines.spark import marks, spark_session
from redrive.engines.spark.handle import Handle, RunError
from redrive.engines.spark.spec import Spec
from redrive.engines.waiting_rooms import check_end
from redrive.engines.words import From, LaneName, Until
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.renewal import renew
from redrive.logs import LogFormat, LogLevel
from redrive.record import partitions_of
from redrive.tuning import RETRY_HORIZON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.app import App

__all__ = ["Handle", "RunError", "start"]


def start(
    spark: SparkSession,
    target: str,
    /,
    *,
    start_from: From = "earliest",
    batch_deadline: Duration = 5.0,
    max_records_per_batch: int = 500_000,
    trigger: Duration | None = None,
    until: Until = "stopped",
    lanes: tuple[LaneName, ...] = ("main", "retry"),
    new_app: bool = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    **arguments: Unpack[SettingsArguments],
) -> Handle:
    """Run an app in this Spark session: `start(spark, "shop:app")`.

    Settings come from the arguments, then the app, the environment and `redrive.toml`. `log_level`
    and `log_format` are for Spark's Python processes; logging in this process is yours.
    `new_app=True` confirms that the app is new, not renamed.
    """
    app, settings = preflight.load(target, "spark", arguments)
    check_end(app, until)
    spark_session.check(spark)
    spark_session.keep_commands_unlogged()
    ready = preflight.check(app, settings, target, engine="spark", new_app=new_app)
    renew(settings, app.name, next(iter(app.handlers)))
    run, old_mark = _new_run(app, settings)
    spec = Spec(
        target=target,
        folder=spark_session.folder_of(target),
        settings=settings,
        sources=sources.remember(target.partition(":")[0]),
        run=run,
        old_mark=old_mark,
        scratch=tempfile.mkdtemp(prefix="redrive-"),
        slots=0,
        until=until,
        start_from=start_from,
        batch_deadline=milliseconds(batch_deadline),
        max_records=max_records_per_batch,
        # In strict order a record that is not due would hold up fresh ones in its task.
        horizon=0 if app.ordering == "strict" else RETRY_HORIZON,
        logs={"log_level": log_level, "log_format": log_format},
        inbox_ttl=ready.inbox_ttl,
    )
    handle = Handle(
        app,
        spec,
        spark,
        lanes=lanes_of(app, lanes, lambda: _has_delays(app, settings)),
        until=until,
        trigger=None if trigger is None else milliseconds(trigger),
    )
    try:
        spark_session.reach_planners(spark)
        spark_session.check_workers(spark, spec)
        handle.see_slots()  # not before: the first job waits for executors, nothing else does
        for lane in handle.lanes[:1] if until == "once" else handle.lanes:
            handle.start_lane(lane)
        handle.check()
    except BaseException:
        handle.stop(0)
        raise
    return handle


def lanes_of(
    app: App, wanted: tuple[LaneName, ...], has_delays: Callable[[], bool]
) -> tuple[LaneName, ...]:
    """The lanes that plan something: in strict order the main lane plans all, alone."""
    if app.ordering == "strict":
        return ("main",)
    return tuple(lane for lane in wanted if lane == "main" or has_delays())


def _has_delays(app: App, settings: Settings) -> bool:
    """Whether records may be parked; also in a delay topic that no policy uses any more."""
    if app.delay_topics:
        return True
    return bool(app.waiting_topics(KafkaLog(settings, app.name).names()))


def _new_run(app: App, settings: Settings) -> tuple[str, str]:
    """A name that tells older runs of this app on Spark to stop, once its planners have said it."""
    log = KafkaLog(settings, app.name)
    progress = KafkaProgress(settings, app.name, stable=False)
    found = log.topics([*app.handlers, *app.delay_topics])
    places = partitions_of({topic: count for topic, (_, count) in found.items()})
    run = marks.new_run(WallClock().now(), progress.committed(places).values())
    return run, marks.replace_old_mark(app, run, progress)
