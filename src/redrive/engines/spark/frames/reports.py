"""Reports: what became of a range of frames, on its way from the task to the driver."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from redrive.engines.spark.frames.accounts import RowsError
from redrive.engines.spark.marks import RivalError
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.reports import SliceReport
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.transactions import FencedError

log: Final = logging.getLogger("redrive.spark")
_FATAL: Final = (ConfigurationError, FencedError, NotAllowedError, RivalError, RowsError)


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
    """Say what stopped a task: a trouble passes; a rival, or a mistake, does not."""
    if stopped is None:
        return report
    if isinstance(stopped, RedriveError) and not isinstance(stopped, _FATAL):
        report.trouble = str(stopped)
    else:
        report.fatal = str(stopped) if isinstance(stopped, RedriveError) else repr(stopped)
        if not isinstance(stopped, RedriveError):
            log.error("a task failed", exc_info=stopped)
    return report


def as_text(report: RangeReport) -> str:
    """A report as it travels, and as the figures take it."""
    return json.dumps(asdict(report))


def as_report(text: str) -> RangeReport:
    """And back."""
    return RangeReport(**json.loads(text))
