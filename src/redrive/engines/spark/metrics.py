"""Metrics of a run on Spark: those of every run, and those of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from redrive.engines.metrics import RunCollector, known
from redrive.metrics import Figure

if TYPE_CHECKING:
    from redrive.engines.spark.handle import Handle


class SparkCollector(RunCollector):
    """The metrics of one run. For your own registry: `registry.register(...)`."""

    FIGURES: ClassVar[tuple[Figure[Any], ...]] = (
        *RunCollector.FIGURES,
        Figure(
            "redrive_batches_total",
            "counter",
            "Finished batches.",
            ("lane",),
            lambda seen: {lane: each.batches for lane, each in seen.lanes.items()},
        ),
        Figure(
            "redrive_failed_batches_total",
            "counter",
            "Batches that failed as a whole.",
            ("lane",),
            lambda seen: {lane: each.failed_batches for lane, each in seen.lanes.items()},
        ),
        Figure(
            "redrive_last_batch_timestamp_seconds",
            "gauge",
            "When the last batch finished.",
            ("lane",),
            lambda seen: known({lane: each.ended for lane, each in seen.lanes.items()}),
        ),
        Figure(
            "redrive_batch_age_seconds",
            "gauge",
            "How long the current batch has been running; 0 if there is none.",
            ("lane",),
            lambda seen: {lane: seen.run.batch_seconds(lane) or 0.0 for lane in seen.lanes},
        ),
    )

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
