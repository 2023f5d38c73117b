"""Queries: the two lanes of an app as streaming queries, and the handle to both."""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Unpack

from redrive.config import SettingsArguments, load_settings
from redrive.engines.spark import session
from redrive.engines.spark.figures import Figures
from redrive.engines.spark.planner import RUN_MARK
from redrive.engines.spark.ranges import From, Lane
from redrive.engines.spark.source import source, source_name
from redrive.engines.spark.spec import Spec
from redrive.errors import RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.progress import KafkaProgress
from redrive.loading import load_app
from redrive.ports import Position
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from redrive.app import App

log: Final = logging.getLogger("redrive.spark")

_DIED: Final = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|worker crashed|executor.*lost"
)
_POLL: Final = 0.1
_FAILED_WAIT: Final = 1.0
OnBatch = Callable[[Lane, list[dict[str, Any]]], None]


class RunError(RedriveError):
    """A run ended with an error; the message is the sentence that says why."""


class Handle:
    """A running app: its queries and figures, and how to stop it."""

    def __init__(self, app: App, spec: Spec, spark: SparkSession) -> None:
        self.app = app
        self.figures = Figures()
        self.queries: dict[Lane, StreamingQuery] = {}
        self._spec = spec
        self._spark = spark
        self._fatal: str | None = None
        self._ended = threading.Event()

    # What users do

    def stop(self, timeout: float = 60.0) -> None:
        """Plan nothing new, let the tasks end at their next commit, then stop the queries."""
        self._spec.stop_file.touch()
        end = monotonic() + timeout
        while any(self._is_busy(lane) for lane in self.queries) and monotonic() < end:
            self._ended.wait(_POLL)
        for query in self.queries.values():
            query.stop()
        shutil.rmtree(self._spec.scratch, ignore_errors=True)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; an error of either lane is raised with its cause."""
        end = None if timeout is None else monotonic() + timeout
        while end is None or monotonic() < end:
            self.check()
            if not any(query.isActive for query in self.queries.values()):
                return True
            self._ended.wait(_POLL)
        return False

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> None:
        """Wait until something holds; an error of either lane is raised meanwhile."""
        end = monotonic() + timeout
        while not condition():
            self.check()
            if monotonic() >= end:
                raise RunError(f"the run did not come that far within {timeout:.0f} s")
            self._ended.wait(_POLL)

    def status(self, lane: Lane) -> dict[str, Any]:
        """What the planner of a lane saw last; empty before it has planned."""
        try:
            found: dict[str, Any] = json.loads(self._spec.status_file(lane).read_text())
        except FileNotFoundError:
            return {}
        return found

    def check(self) -> None:
        """Raise the error that ended the run, if one did."""
        for lane, query in list(self.queries.items()):
            fatal = self._fatal or self.status(lane).get("fatal")
            if fatal:
                self._stop_at_once()
                raise RunError(fatal)
            error = query.exception()
            if error is not None:
                self._stop_at_once()
                raise RunError(f"the {lane} lane ended: {error}")

    # How it runs

    def start(self, lane: Lane, interval: str | None) -> None:
        """Start the query of a lane."""
        self._spark.dataSource.register(source(self._spec, lane))
        rows = self._spark.readStream.format(source_name(self._spec, lane)).load()
        writer = (
            rows.writeStream.queryName(f"redrive {self.app.name} {lane} {self._spec.run}")
            .option("checkpointLocation", str(Path(self._spec.scratch) / lane))
            .foreachBatch(lambda batch, number: self._run_batch(lane, batch, number))
        )
        if interval is not None:
            writer = writer.trigger(processingTime=interval)
        self.queries[lane] = writer.start()

    def _run_batch(self, lane: Lane, batch: DataFrame, number: int) -> None:
        self._spark.sparkContext.setJobDescription(
            f"redrive {self.app.name}: {lane} lane, {number}"
        )
        try:
            rows = batch.collect()
        except Exception as error:
            if self._spec.stop_file.exists():
                return
            if not _DIED.search(str(error)):
                raise
            # Tasks begin from what was committed: nothing is lost, and the planner goes on.
            self.figures.failed(lane, "a Python worker died, again and again")
            log.warning(
                "%s lane, batch %d: a Python worker died; its range is probed", lane, number
            )
            return
        reports = self.figures.add(lane, [row[0] for row in rows])
        self._note_errors(lane, reports)

    def _note_errors(self, lane: Lane, reports: list[dict[str, Any]]) -> None:
        for report in reports:
            if report["fatal"]:
                self._fatal = report["fatal"]
                self._spec.stop_file.touch()
        troubles = {report["trouble"] for report in reports if report["trouble"]}
        for trouble in troubles:
            log.warning("%s lane: %s; tried again", lane, trouble)
        if troubles:
            self._ended.wait(_FAILED_WAIT)  # never hot: whatever it is, it is not over yet

    def _is_busy(self, lane: Lane) -> bool:
        query = self.queries[lane]
        if not query.isActive:
            return False
        return not self.status(lane).get("stopped") or (
            bool(query.status["isTriggerActive"])
            and ("Getting offsets" not in query.status["message"])
        )

    def _stop_at_once(self) -> None:
        self._spec.stop_file.touch()
        for query in self.queries.values():
            query.stop()


def start(
    spark: SparkSession,
    target: str,
    /,
    *,
    start_from: From = "earliest",
    batch_deadline: float = 5.0,
    max_records_per_batch: int = 500_000,
    trigger: str | None = None,
    once: bool = False,
    lanes: tuple[Lane, ...] = ("main", "retry"),
    **arguments: Unpack[SettingsArguments],
) -> Handle:
    """Run an app in this Spark session: `start(spark, "shop:app")`.

    Settings come from the arguments, then the app, the environment and `redrive.toml`.
    """
    app = load_app(target)
    app.check("spark")
    settings = load_settings(arguments, app.settings)
    slots = session.check(spark)
    spec = Spec(
        target=target,
        folder=session.folder_of(target),
        settings=settings,
        run=uuid.uuid4().hex[:12],
        scratch=tempfile.mkdtemp(prefix="redrive-"),
        slots=slots,
        once=once,
        start_from=start_from,
        batch_deadline=round(batch_deadline * 1000),
        max_records=max_records_per_batch,
    )
    session.probe(spark, spec)
    _leave_mark(app, spec)
    handle = Handle(app, spec, spark)
    for lane in lanes:
        if lane == "main" or app.delay_topics:
            handle.start(lane, trigger)
    return handle


def _leave_mark(app: App, spec: Spec) -> None:
    """Tell other runs of this app on Spark that this one is the newest: they stop."""
    admin = Admin(spec.settings)
    mark = TopicPartition(app.dead_topic, 0)
    KafkaProgress(spec.settings, app.name, admin=admin).commit(
        {mark: Position(0, RUN_MARK + spec.run)}
    )
