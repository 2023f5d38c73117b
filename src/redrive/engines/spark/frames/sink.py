"""Sink: the end of a frame's plan, in a Python worker; rows become outcomes, and durable.

One task has the rows of one range. It writes with the same publishers as handlers of records do,
and commits as it goes; what it gives back to Spark is one row, its report.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from redrive.engines.spark.frames.accounts import RowsError
from redrive.engines.spark.frames.delivery import Delivery
from redrive.engines.spark.frames.process import process
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.slices import SliceReport
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.transactions import FencedError
from redrive.record import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("redrive.spark")
_FATAL: Final = (ConfigurationError, FencedError, RowsError)
REPORT: Final = "report string"
COLUMNS: Final = (
    "redrive.read.number AS number",
    "redrive.read.topic AS topic",
    "redrive.read.partition AS partition",
    "redrive.read.offset AS offset",
    "outcome.kind AS kind",
    "outcome.reason AS reason",
    "outcome.after AS after",
    "outcome.sends AS sends",
    # What was read is needed again only where it is written again.
    "if(outcome.kind IN ('park', 'bury'), redrive.read, null) AS read",
)


@dataclass(frozen=True)
class Sink:
    """What tasks of one batch have to know; called by Spark with the rows of one task."""

    spec: Spec
    ranges: Mapping[TopicPartition, Range]
    topic_id: str
    now: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        try:
            report = self.deliver(batches, again=again)
        except Exception as error:  # noqa: BLE001 -- raised here, it would count against a record
            report = blamed(untouched(next(iter(self.ranges.values()))), error)
        if report is not None:
            yield pa.RecordBatch.from_pydict({"report": [json.dumps(asdict(report))]})

    def deliver(
        self, batches: Iterator[pa.RecordBatch], *, again: bool = False
    ) -> SliceReport | None:
        """Run one task; troubles are part of its report, since Spark must not count them."""
        delivery: Delivery | None = None
        stopped: Exception | None = None
        for batch in batches:
            if stopped is not None or not batch.num_rows:
                continue  # to the end: Spark's process would take a closed pipe for a failure
            try:
                if delivery is None:
                    delivery = self.open(_place(batch), again=again)
                delivery.take(batch)
            except Exception as error:  # noqa: BLE001 -- whatever it is, the driver shall say it
                stopped = error
                place = _place(batch)
        if delivery is None and stopped is None:
            return None
        if delivery is None:
            return blamed(untouched(self.ranges[place]), stopped)
        return self.end(delivery, stopped)

    def open(self, place: TopicPartition, *, again: bool) -> Delivery:
        """Begin with one range."""
        return Delivery(
            self.spec,
            process(self.spec),
            self.ranges[place],
            topic_id=self.topic_id,
            now=self.now,
            again=again,
        )

    def end(self, delivery: Delivery, stopped: Exception | None) -> SliceReport:
        """Make the rest durable, and report."""
        try:
            if stopped is None:
                delivery.finish()
        except Exception as error:  # noqa: BLE001 -- as above
            stopped = error
        report = delivery.report()
        delivery.close()
        return blamed(report, stopped)


def untouched(each: Range) -> SliceReport:
    """The report of a range in which nothing was done."""
    return SliceReport(each.topic, each.partition, each.start, each.start, each.delay)


def blamed(report: SliceReport, stopped: Exception | None) -> SliceReport:
    """Say what stopped a task: a trouble passes; being fenced, or a mistake, does not."""
    if stopped is None:
        return report
    if isinstance(stopped, RedriveError) and not isinstance(stopped, _FATAL):
        report.trouble = str(stopped)
    else:
        log.error("a task failed", exc_info=stopped)
        report.fatal = str(stopped) if isinstance(stopped, RedriveError) else repr(stopped)
    return report


def as_report(text: str) -> SliceReport:
    """The report of a task, as it came to the driver."""
    return SliceReport(**json.loads(text))


def _place(batch: pa.RecordBatch) -> TopicPartition:
    return TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
