"""Figures of a worker: those of every run, and its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from prometheus_client.core import Metric

from redrive.engines.metrics import RunCollector
from redrive.engines.worker.figures import TIME_BUCKETS
from redrive.metrics import Figure

if TYPE_CHECKING:
    from redrive.engines.worker.worker import Worker

HANDLING: Final = Figure("redrive_handler_seconds", "histogram", "Time in handlers.")
OLDEST: Final = Figure(
    "redrive_oldest_handler_seconds",
    "gauge",
    "For how long the oldest of the handlers that run has been running; 0 where none is.",
)
COMMITTING: Final = Figure("redrive_commit_seconds", "histogram", "Time of commits.")
REBALANCES: Final = Figure(
    "redrive_rebalances_total", "counter", "How often partitions came or went.", ("kind",)
)
COMMIT_FAILURES: Final = Figure(
    "redrive_commit_failures_total", "counter", "Commits that were refused."
)
HUNG: Final = Figure(
    "redrive_hung_handlers_total", "counter", "Handlers given up, their threads lost."
)
ASSIGNED: Final = Figure("redrive_assigned_partitions", "gauge", "Partitions this worker has.")
UNASSIGNED: Final = Figure(
    "redrive_unassigned_partitions",
    "gauge",
    "Partitions of the app's topics that no worker is assigned.",
    ("topic",),
)
REFUSED: Final = Figure(
    "redrive_refused_writes",
    "gauge",
    "Records that stay where they are, because what was to be written was refused.",
)


class WorkerCollector(RunCollector):
    """The figures of one worker. For a registry of your own: `registry.register(...)`."""

    FIGURES: ClassVar[tuple[Figure, ...]] = (
        HANDLING,
        OLDEST,
        COMMITTING,
        REBALANCES,
        COMMIT_FAILURES,
        HUNG,
        ASSIGNED,
        UNASSIGNED,
        REFUSED,
    )

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._worker = worker

    def collect(self) -> Iterable[Metric]:
        """All figures, as they are now."""
        yield from super().collect()
        worker, app, counting = self._worker, self._app, self._worker.counting
        for figure, times in ((HANDLING, counting.handling), (COMMITTING, counting.committing)):
            yield figure.histogram(app, TIME_BUCKETS, times.counts, times.total)
        yield OLDEST.one(app, worker.oldest_handler())
        kinds = ("assigned", "revoked", "lost")
        yield REBALANCES.of(app, {kind: counting.rebalances[kind] for kind in kinds})
        yield COMMIT_FAILURES.one(app, counting.commit_failures)
        yield HUNG.one(app, counting.hung)
        yield ASSIGNED.one(app, worker.assigned)
        yield UNASSIGNED.of(app, dict(worker.rejoining.unassigned))
        yield REFUSED.one(app, worker.refused)
