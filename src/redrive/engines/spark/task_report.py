"""Reports: what became of a range, on its way from the task to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from redrive.delivery.refusing_topics import Waiting
from redrive.delivery.store import StoreNotAllowedError
from redrive.engines.spark.marks import RivalError
from redrive.engines.spark.outages.told import Told
from redrive.engines.spark.ranges import Range
from redrive.errors import RedriveError, Refusal, TooManyDeadError
from redrive.kafka.errors import NotAllowedError
from redrive.processing.outcomes.causes import Seen

ReportT = TypeVar("ReportT", bound="SliceReport")

ENDS_THE_RUN: Final[tuple[type[Exception], ...]] = (
    RivalError,
    NotAllowedError,
    StoreNotAllowedError,
    TooManyDeadError,
)


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
    refused: int = 0
    """How many of its records stay where they are, because their writes were refused."""
    refusals: list[tuple[str, Refusal, str]] = field(default_factory=list)
    """By which topics, what kind of refusal each is, and the sentence that says why."""


class TaskReport(NamedTuple):
    """What a task reports to the driver."""

    slices: list[SliceReport]
    lateness: list[int]
    """How late parked records were, in milliseconds."""
    causes: list[Seen]
    """Why records failed."""
    guards: list[Told]
    """What was seen by guards."""


def refuse(report: SliceReport, waiting: Waiting) -> None:
    """Say which records of a range wait for topics: they would be handled again and again."""
    report.refused = waiting.records
    found = {each.topic: (each.topic, each.kind, str(each)) for each in waiting.reasons}
    report.refusals = [*found.values()]


def untouched(each: Range, stopped: Exception | None) -> SliceReport:
    """The report of a range in which nothing was done."""
    report = SliceReport(each.topic, each.partition, each.start, each.start, each.delay)
    return blamed(report, stopped)


def blamed(
    report: ReportT,
    stopped: Exception | None,
    fatal: tuple[type[Exception], ...] = ENDS_THE_RUN,
) -> ReportT:
    """Say what stopped a task: trouble passes; what is `fatal`, or a bug, ends the run."""
    if stopped is None:
        return report
    if isinstance(stopped, RedriveError) and not isinstance(stopped, fatal):
        report.trouble = str(stopped)
    else:
        report.fatal = str(stopped) if isinstance(stopped, RedriveError) else repr(stopped)
    return report
