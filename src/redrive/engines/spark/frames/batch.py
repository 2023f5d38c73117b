"""Batch: one batch of frames, from planned ranges to reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from redrive.clock import WallClock
from redrive.engines import preflight
from redrive.engines.spark.frames import intake, plan_check, reading
from redrive.engines.spark.frames.columns import OUTCOME, OUTCOMES, of_array
from redrive.engines.spark.frames.faults import (
    as_records_error,
    as_sparks,
    as_users_mistake,
    fault,
    is_users_mistake,
    said,
)
from redrive.engines.spark.frames.frame_report import RangeReport, as_report, blamed, untouched
from redrive.engines.spark.frames.frame_session import ArrowBatchSize
from redrive.engines.spark.frames.intake import REDRIVE, Rules
from redrive.engines.spark.frames.process import process
from redrive.engines.spark.frames.range_delivery import RangeDelivery
from redrive.engines.spark.frames.sink import COLUMNS, Sink
from redrive.engines.spark.halving import PROOF, Suspects
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.runtime import Clients
from redrive.engines.spark.spark_session import check_workers
from redrive.engines.spark.spec import Spec
from redrive.engines.words import LaneName
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.errors import NotAllowedError
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from redrive.app import App

log: Final = logging.getLogger("redrive.spark")
FAILED: Final = "failed-expression"
KILLED: Final = "killed-worker"
_REFUSED: Final = "AuthorizationException"
"""Part of the names that Kafka's Java client has for what is not allowed."""
_HOW_TO_MAKE_IT: Final = "make it with redrive.spark.done(), send(), park() or bury()"


class Batches:
    """Runs the batches of one lane."""

    def __init__(self, spark: SparkSession, app: App, spec: Spec, lane: LaneName) -> None:
        handler = app.frame_handler
        assert handler is not None  # noqa: S101 -- an app without one has no frames to run
        self._spark = spark
        self._app = app
        self._handler = handler
        self._spec = spec
        self._lane = lane
        self._suspects = Suspects()
        self._arrow_batch_size = ArrowBatchSize(spark)
        self._worked = False
        self._topic_id = ""
        _see(spark, spec.folder)

    def run(self, ranges: Sequence[Range]) -> list[RangeReport]:
        """Run the ranges, in one job or, while a record is searched for, in several."""
        found: list[RangeReport] = []
        for part in self._suspects.share_out(ranges):
            found += self._run(part)
        return found

    def _run(self, ranges: Sequence[Range]) -> list[RangeReport]:
        try:
            sink = self._sink(ranges)
            reports = self._job(sink, ranges)
            reports += self._without_rows(sink, reports)
        except RedriveError as error:
            return self._stopped(ranges, error)
        except Exception as error:  # noqa: BLE001 -- it may be anybody's: `fault` tells whose
            return self._failed(ranges, as_sparks(error))
        self._suspects.passed(ranges)
        self._worked = True
        return reports

    def _sink(self, ranges: Sequence[Range]) -> Sink:
        # Every time: a topic that was recreated has another one, and its offsets start again.
        self._topic_id = self._process.kafka_log.topic_id(self._handler.topic)
        by_place = {each.place: each for each in ranges}
        return Sink(self._spec, by_place, self._topic_id, WallClock().now())

    def _job(self, sink: Sink, ranges: Sequence[Range]) -> list[RangeReport]:
        self._arrow_batch_size.set()
        rows = sink.over(self._outcomes(self._read(ranges), sink.now, ranges))
        plan_check.check(rows, self._handler.topic)  # and it runs as it was planned for this
        reports = [as_report(row[0]) for row in rows.collect()]
        self._arrow_batch_size.learn(max((report.row_bytes for report in reports), default=0))
        return reports

    def _read(self, ranges: Sequence[Range]) -> DataFrame:
        # One of this run alone: Spark keeps consumers by it, each with the settings of its making.
        group = f"{self._app.name}-frames-{self._spec.run}"
        return reading.read(self._spark, self._spec.settings, ranges, group)

    def _outcomes(self, kafka: DataFrame, now: int, ranges: Sequence[Range]) -> DataFrame:
        given = intake.input_frame(kafka, self._rules(now, ranges))
        try:
            made = self._handler.call(given)
        except Exception as error:
            if is_users_mistake(error):  # it would be made again, with every batch
                raise as_users_mistake(error, self._handler.topic) from error
            raise
        return outcomes(made, self._handler.topic)

    def _without_rows(self, sink: Sink, reports: Sequence[RangeReport]) -> list[RangeReport]:
        """Ranges of which no row came out: there is nothing in them, or nothing to handle."""
        told = {(report.topic, report.partition) for report in reports}
        return [
            self._driven(sink, place, RangeDelivery.finish)
            for place in sink.ranges
            if place not in told
        ]

    def _driven(
        self, sink: Sink, place: TopicPartition, work: Callable[[RangeDelivery], None]
    ) -> RangeReport:
        """Do on the driver what a task does elsewhere, for a range that has no rows to compute."""
        try:
            delivery = sink.open(place, again=True)
        except RedriveError as trouble:
            return blamed(untouched(sink.ranges[place]), sink.explained(trouble))
        stopped: Exception | None = None
        try:
            work(delivery)
        except RedriveError as trouble:
            stopped = trouble
        report = delivery.report()
        delivery.close()
        return blamed(report, sink.explained(stopped))

    def _failed(self, ranges: Sequence[Range], error: Exception) -> list[RangeReport]:
        whose, told = fault(error), said(error)
        if whose == "mistake" and not self._worked:
            mistake = ConfigurationError(f'frame handler of "{self._handler.topic}": {told}')
            return self._stopped(ranges, mistake)
        if whose in ("outage", "mistake"):
            refused = self._not_allowed(error)
            return self._stopped(ranges, refused or RedriveError(f"a batch failed: {told}"))
        log.warning("%s lane: a row cannot be computed (%s): searching for it", self._lane, told)
        proof = PROOF if whose == "death" else 1
        if not self._suspects.blame(ranges, proof=proof):
            return [untouched(each) for each in ranges]
        (alone,) = ranges
        report = self._without_records(alone) or self._end(alone, error)
        if report.end >= alone.end:
            self._suspects.passed(ranges)
        return [report]

    def _not_allowed(self, error: Exception) -> NotAllowedError | None:
        """What Spark's own reader was refused, if it is something that the app needs."""
        if _REFUSED not in str(error):
            return None
        told = preflight.not_allowed(self._app, self._spec.settings, self._spec.target)
        return NotAllowedError(told) if told else None

    def _without_records(self, alone: Range) -> RangeReport | None:
        """Whether the handler fails also without any record: then none of them is at fault.

        So it is with a table that it joins, an expression that no row has a part in, or a machine
        on which no Python worker stays alive.
        """
        try:
            check_workers(self._spark, self._spec)
            nobody = self._read([alone]).where("offset < 0")
            rows = self._outcomes(nobody, WallClock().now(), [alone])
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is not the record
            told = f"the frame handler fails also without any record: {said(as_sparks(error))}"
            return blamed(untouched(alone), RedriveError(told))
        return None

    def _end(self, alone: Range, error: Exception) -> RangeReport:
        """End a record that was alone in a job that failed for its data, at every attempt."""
        told = as_records_error(error)

        def end(delivery: RangeDelivery) -> None:
            match fault(error):
                case "function":
                    delivery.fail(told)
                case "death":
                    delivery.bury(KILLED, told)
                case _:
                    delivery.bury(FAILED, told)

        return self._driven(self._sink([alone]), alone.place, end)

    def _stopped(self, ranges: Sequence[Range], error: RedriveError) -> list[RangeReport]:
        return [blamed(untouched(each), error) for each in ranges]

    def _rules(self, now: int, ranges: Sequence[Range]) -> Rules:
        delays = {each.topic: each.delay for each in ranges if each.delay is not None}
        return Rules(
            app=self._app.name,
            was=self._app.was,
            topic=self._handler.topic,
            topic_id=self._topic_id,
            now=now,
            delays=delays if self._lane == "retry" else None,
            to_origin=self._handler.retry.redeliver == "origin",
            done={each.place: done for each in ranges if (done := each.done)},
            parked=ranges[0].rules if self._lane == "retry" else (),
            topic_ids={each.place: each.topic_id for each in ranges},
        )

    @property
    def _process(self) -> Clients:
        return process(self._spec)


def _see(spark: SparkSession, folder: str) -> None:
    """Have workers find the app's module: a Python function of the handler's may be in it."""
    included = spark.sparkContext._python_includes  # noqa: SLF001 -- Spark takes files only
    if folder and included is not None and folder not in included:
        included.append(folder)


def outcomes(frame: object, topic: str) -> DataFrame:
    """The columns that tasks need, of what a frame handler returned."""
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        raise ConfigurationError(
            f'frame handler of "{topic}": it returned {type(frame).__name__}, not a DataFrame'
        )
    types = dict(frame.dtypes)
    problems = [
        f'its result has no column "{name}"'
        if name not in types
        else f'its column "{name}" is {types[name][:80]}: {hint}'
        for name, wanted, hint in (
            ("redrive", (REDRIVE,), "it must be as it was given"),
            ("outcome", (OUTCOME, OUTCOMES), _HOW_TO_MAKE_IT),
        )
        if types.get(name) not in wanted
    ]
    if problems:
        raise ConfigurationError([f'frame handler of "{topic}": {each}' for each in problems])
    if types["outcome"] == OUTCOMES:
        frame = frame.withColumn("outcome", of_array(frame["outcome"]))
    return frame.selectExpr(*COLUMNS)
