"""Reports: what became of a range, on its way from the task to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from redrive.engines.spark.marks import RivalError
from redrive.engines.spark.ranges import Range
from redrive.errors import RedriveError
from redrive.kafka.errors import NotAllowedError

_ENDS_THE_RUN: Final = (RivalError, NotAllowedError)


@dataclass
class SliceReport:
    """What became of a range; it travels back to the driver as JSON."""

    topic: str
    partition: int
    start: int
    end: int
    """How far it was committed."""
    delay: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    trouble: str = ""
    fatal: str = ""


def untouched(each: Range, stopped: Exception | None) -> SliceReport:
    """The report of a range in which nothing was done."""
    report = SliceReport(each.topic, each.partition, each.start, each.start, each.delay)
    blame(report, stopped)
    return report


def blame(report: SliceReport, stopped: Exception | None) -> None:
    """Say what stopped a task: a trouble passes; what only others can change ends the run."""
    if stopped is None:
        return
    told = str(stopped) if isinstance(stopped, RedriveError) else repr(stopped)
    if isinstance(stopped, RedriveError) and not isinstance(stopped, _ENDS_THE_RUN):
        report.trouble = told
    else:
        report.fatal = told
