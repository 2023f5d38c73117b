"""Prometheus figures of a worker: those of every run, and its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from redrive.engines.worker.figures import TIME_BUCKETS, Times
from redrive.metrics import RunCollector

if TYPE_CHECKING:
    from redrive.engines.worker.worker import Worker


class WorkerCollector(RunCollector):
    """The figures of one worker."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._worker = worker

    def collect(self) -> Iterable[Metric]:
        """All figures, as they are now."""
        yield from super().collect()
        counting = self._worker.counting
        name = self._worker.app.name
        yield self._histogram("redrive_handler_seconds", "Time in handlers.", counting.handling)
        yield self._histogram("redrive_commit_seconds", "Time of commits.", counting.committing)
        rebalances = CounterMetricFamily(
            "redrive_rebalances",
            "How often partitions came or went.",
            labels=["app", "kind"],
        )
        for kind in ("assigned", "revoked", "lost"):
            rebalances.add_metric([name, kind], counting.rebalances[kind])
        yield rebalances
        yield from (
            self._one(
                "redrive_commit_failures", "Commits that were refused.", counting.commit_failures
            ),
            self._one(
                "redrive_hung_handlers", "Handlers given up, their threads lost.", counting.hung
            ),
        )
        partitions = GaugeMetricFamily(
            "redrive_assigned_partitions", "Partitions this worker has.", labels=["app"]
        )
        partitions.add_metric([name], self._worker.assigned)
        refused = GaugeMetricFamily(
            "redrive_refused_writes",
            "Records that stay where they are, because what was to be written was refused.",
            labels=["app"],
        )
        refused.add_metric([name], self._worker.refused)
        unassigned = GaugeMetricFamily(
            "redrive_unassigned_partitions",
            "Partitions of the app's topics that no worker is assigned.",
            labels=["app", "topic"],
        )
        for topic, count in self._worker.rejoining.unassigned.items():
            unassigned.add_metric([name, topic], count)
        yield from (partitions, refused, unassigned)

    def _one(self, name: str, text: str, count: int) -> CounterMetricFamily:
        metric = CounterMetricFamily(name, text, labels=["app"])
        metric.add_metric([self._worker.app.name], count)
        return metric

    def _histogram(self, name: str, text: str, times: Times) -> HistogramMetricFamily:
        reached, buckets = 0, []
        for bound, count in zip([*map(str, TIME_BUCKETS), "+Inf"], times.counts, strict=True):
            reached += count
            buckets.append((bound, reached))
        metric = HistogramMetricFamily(name, text, labels=["app"])
        metric.add_metric([self._worker.app.name], buckets, times.total)
        return metric
