"""Figures of a run on Spark: those of every run, and of its batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from prometheus_client.core import Metric

from redrive.engines.metrics import RunCollector
from redrive.metrics import Figure

if TYPE_CHECKING:
    from redrive.engines.spark.handle import Handle

BATCHES: Final = Figure("redrive_batches_total", "counter", "Batches that ended.", ("lane",))
FAILED: Final = Figure(
    "redrive_failed_batches_total", "counter", "Batches that failed as a whole.", ("lane",)
)
LAST_BATCH: Final = Figure(
    "redrive_last_batch_timestamp_seconds", "gauge", "When the last batch ended.", ("lane",)
)
UNDER_WAY: Final = Figure(
    "redrive_batch_age_seconds",
    "gauge",
    "For how long the batch under way has been; 0 where there is none.",
    ("lane",),
)


class SparkCollector(RunCollector):
    """The figures of one run. For a registry of your own: `registry.register(...)`."""

    FIGURES: ClassVar[tuple[Figure, ...]] = (BATCHES, FAILED, LAST_BATCH, UNDER_WAY)

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._handle = handle

    def collect(self) -> Iterable[Metric]:
        """All figures, as they are now."""
        yield from super().collect()
        lanes = self._handle.figures.lanes
        yield BATCHES.of(self._app, {lane: each.batches for lane, each in lanes.items()})
        yield FAILED.of(self._app, {lane: each.failed_batches for lane, each in lanes.items()})
        ended = {lane: each.ended for lane, each in lanes.items() if each.ended is not None}
        yield LAST_BATCH.of(self._app, ended)
        ages = {lane: self._handle.batch_seconds(lane) or 0.0 for lane in lanes}
        yield UNDER_WAY.of(self._app, ages)
