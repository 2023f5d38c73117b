"""Reports: what became of a range of frames, on its way from the task to the driver."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from redrive.engines.spark import task_report
from redrive.engines.spark.frames.row_audit import RowsError
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.task_report import SliceReport
from redrive.errors import ConfigurationError, RedriveError

log: Final = logging.getLogger("redrive.spark")
_FATAL: Final = (*task_report.ENDS_THE_RUN, ConfigurationError, RowsError)


@dataclass
class RangeReport(SliceReport):
    """What became of a range of frames."""

    lateness: list[int] = field(default_factory=list)
    """Of rows that were parked: milliseconds from when they were due to when they came out."""
    row_bytes: int = 0
    """What a row had in memory, on average over the Arrow batch with the heaviest ones."""
    causes: list[dict[str, Any]] = field(default_factory=list)
    """Why rows were parked and buried."""


def untouched(each: Range) -> RangeReport:
    """The report of a range in which nothing was done."""
    return RangeReport(each.topic, each.partition, each.start, each.start, each.delay)


def blamed(report: RangeReport, stopped: Exception | None) -> RangeReport:
    """Say what stopped a task; a bug is logged too."""
    if stopped is not None and not isinstance(stopped, RedriveError):
        log.error("a task failed", exc_info=stopped)
    return task_report.blamed(report, stopped, _FATAL)


def as_text(report: RangeReport) -> str:
    """A report as it travels, and as the figures take it."""
    return json.dumps(asdict(report))


def as_report(text: str) -> RangeReport:
    """And back."""
    return RangeReport(**json.loads(text))
