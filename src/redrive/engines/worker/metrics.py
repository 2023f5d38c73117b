"""Metrics of a worker: those of every run, and its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from redrive.engines.metrics import RunCollector
from redrive.metrics import Figure

if TYPE_CHECKING:
    from redrive.engines.worker.worker import Worker


class WorkerCollector(RunCollector):
    """The metrics of one worker. For your own registry: `registry.register(...)`."""

    FIGURES: ClassVar[tuple[Figure[Any], ...]] = (
        *RunCollector.FIGURES,
        Figure(
            "redrive_handler_seconds",
            "histogram",
            "Time spent in handlers.",
            (),
            lambda seen: seen.run.counting.handling.buckets(),
        ),
        Figure(
            "redrive_oldest_handler_seconds",
            "gauge",
            "How long the longest-running handler has been running; 0 if none is.",
            (),
            lambda seen: seen.run.oldest_handler(),
        ),
        Figure(
            "redrive_commit_seconds",
            "histogram",
            "Time that commits took.",
            (),
            lambda seen: seen.run.counting.committing.buckets(),
        ),
        Figure(
            "redrive_rebalances_total",
            "counter",
            "How often partitions were assigned, revoked or lost.",
            ("kind",),
            lambda seen: {
                kind: seen.run.counting.rebalances[kind] for kind in ("assigned", "revoked", "lost")
            },
        ),
        Figure(
            "redrive_commit_failures_total",
            "counter",
            "Commits that were refused.",
            (),
            lambda seen: seen.run.counting.commit_failures,
        ),
        Figure(
            "redrive_hung_handlers_total",
            "counter",
            "Handlers given up on; their threads are lost.",
            (),
            lambda seen: seen.run.counting.hung,
        ),
        Figure(
            "redrive_blocked_keys",
            "gauge",
            "Keys of this worker that wait for a parked record, in strict order.",
            (),
            lambda seen: seen.run.blocked_keys,
        ),
        Figure(
            "redrive_most_behind_records",
            "gauge",
            "Records that wait of the key of which most do, the parked one included.",
            (),
            lambda seen: seen.run.most_behind,
        ),
        Figure(
            "redrive_assigned_partitions",
            "gauge",
            "Partitions assigned to this worker.",
            (),
            lambda seen: seen.run.assigned,
        ),
        Figure(
            "redrive_unassigned_partitions",
            "gauge",
            "Partitions of the app's topics that are assigned to no worker.",
            ("topic",),
            lambda seen: dict(seen.run.rejoining.unassigned),
        ),
    )

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
