"""Sink: the end of a frame's plan, in a Python worker; rows become outcomes, and durable.

One task has the rows of one range. It writes with the same publishers as handlers of records do,
and commits as it goes; what it returns to Spark is one row, its report.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from redrive.engines.spark import marks
from redrive.engines.spark.frames import frame_report
from redrive.engines.spark.frames.frame_report import RangeReport
from redrive.engines.spark.frames.process import process
from redrive.engines.spark.frames.range_delivery import RangeDelivery
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.runtime import log_here
from redrive.engines.spark.spec import Spec
from redrive.errors import RedriveError
from redrive.processing.execution.collector import tune_collector
from redrive.record import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # -- it has no types
    from pyspark.sql import DataFrame

_REPORT: Final = "report string"
_FAILED: Final = (
    "named_struct('reason', outcome.reason, 'after', outcome.after, 'read', redrive.read)"
)
COLUMNS: Final = (
    "redrive.read.number AS number",
    "redrive.read.topic AS topic",
    "redrive.read.partition AS partition",
    "redrive.read.offset AS offset",
    "redrive.read.due AS due",
    "outcome.kind AS kind",
    "outcome.sends AS sends",
    # Only where a record is written again. In an array, since for a struct that is null all that
    # would be in it is written as null, one by one.
    f"if(outcome.kind IN ('park', 'bury'), array({_FAILED}), null) AS failed",
)


@dataclass(frozen=True)
class Sink:
    """What tasks of one batch have to know; called by Spark with the rows of one task."""

    spec: Spec
    ranges: Mapping[TopicPartition, Range]
    topic_id: str
    now: int

    def over(self, rows: DataFrame) -> DataFrame:
        """The plan with the sink at its end: it returns the reports of its tasks.

        As `mapInArrow` does it, which asks for pandas though it uses nothing of it.
        """
        from pyspark.sql import DataFrame
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        function = UserDefinedFunction(self, returnType=_REPORT, evalType=kind)
        column = function(*(rows[name] for name in rows.columns))
        mapped = rows._jdf.mapInArrow(column._jc, False, None)  # noqa: FBT003, SLF001 -- Java's
        return DataFrame(mapped, rows.sparkSession)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        _tune_once(os.getpid())
        log_here(self.spec)
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        try:
            report = self.deliver(batches, again=again)
        except Exception as error:  # noqa: BLE001 -- raised here, it would count against a record
            report = frame_report.blamed(
                frame_report.untouched(next(iter(self.ranges.values()))), error
            )
        if report is not None:
            yield pa.RecordBatch.from_pydict({"report": [frame_report.as_text(report)]})

    def deliver(
        self, batches: Iterator[pa.RecordBatch], *, again: bool = False
    ) -> RangeReport | None:
        """Run one task; troubles are part of its report, since Spark must not count them."""
        delivery: RangeDelivery | None = None
        each: Range | None = None
        stopped: Exception | None = None
        try:
            for batch in _whole_ones(batches):
                each = each or self.ranges[_place(batch)]
                delivery = delivery or self.open(each.place, again=again)
                delivery.add(batch)
                if delivery.cut:
                    break  # what is left is not computed: it is planned again
        except Exception as error:  # noqa: BLE001 -- whatever it is, the driver says it
            stopped = error
        return None if each is None else self._end(each, delivery, stopped)

    def open(self, place: TopicPartition, *, again: bool) -> RangeDelivery:
        """Begin with one range."""
        return RangeDelivery(
            self.spec,
            process(self.spec),
            self.ranges[place],
            topic_id=self.topic_id,
            now=self.now,
            again=again,
        )

    def _end(
        self, each: Range, delivery: RangeDelivery | None, stopped: Exception | None
    ) -> RangeReport:
        """Make the rest durable, and report."""
        if delivery is None:
            return frame_report.blamed(frame_report.untouched(each), self.explained(stopped))
        try:
            if stopped is None:
                delivery.finish()
        except Exception as error:  # noqa: BLE001 -- as above
            stopped = error
        report = delivery.report()
        delivery.close()
        return frame_report.blamed(report, self.explained(stopped))

    def explained(self, error: Exception | None) -> Exception | None:
        """Tell by whom this task was fenced off: a newer run, or a task that was given up."""
        kept = process(self.spec)
        return marks.explained(error, kept.app.name, self.spec.run, self.ranges, kept.marks)


@cache
def _tune_once(_pid: int) -> None:
    """A worker is Spark's, and only for tasks; what a driver is for, its owner knows."""
    tune_collector()


def _whole_ones(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as Spark has them; where it fails, it ends them in the middle."""
    try:
        yield from (batch for batch in batches if batch.num_rows)
    except Exception as error:
        raise RedriveError(f"the rows of a task ended early: {error}") from error


def _place(batch: pa.RecordBatch) -> TopicPartition:
    return TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
