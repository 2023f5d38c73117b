"""Metrics of a worker: those of every run, and its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from redrive.engines.metrics import RunCollector
from redrive.metrics import Figure

if TYPE_CHECKING:
    from redrive.engines.worker.worker import Worker


STATES: Final = {"closed": 0.0, "suspect": 0.0, "ramp": 1.0, "open": 2.0}
"""Guards as numbers; whoever sums them up knows whether one is open."""


def outages(worker: Worker) -> dict[tuple[str, ...], float]:
    """When those were seen that last, by topic and fingerprint."""
    return {(each.topic, each.cause): each.opened / 1000 for each in worker.guards() if each.opened}


def probes(worker: Worker) -> dict[tuple[str, ...], float]:
    """By topic and result."""
    return {
        (each.topic, result): each.probes.get(result, 0)
        for each in worker.guards()
        for result in ("passed", "failed")
    }


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
        Figure(
            "redrive_guard_state",
            "gauge",
            "Whether a handler's guard is open: 0 no, 1 letting records through again, 2 yes.",
            ("topic",),
            lambda seen: {each.topic: STATES[each.state] for each in seen.run.guards()},
        ),
        Figure(
            "redrive_guard_since_timestamp_seconds",
            "gauge",
            "When the outage was seen for which a handler's guard is open.",
            ("topic", "fingerprint"),
            lambda seen: outages(seen.run),
        ),
        Figure(
            "redrive_guard_probes_total",
            "counter",
            "Calls that a handler's guard has let through while it was open.",
            ("topic", "result"),
            lambda seen: probes(seen.run),
        ),
    )

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
