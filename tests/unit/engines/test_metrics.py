"""Prometheus figures: right names, right labels, right numbers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from redrive import App, RetryPolicy
from redrive.engines.ahead import Ahead
from redrive.engines.figures import Figures
from redrive.engines.spark.metrics import SparkCollector
from redrive.engines.worker.counting import Counting
from redrive.engines.worker.metrics import WorkerCollector
from redrive.fingerprint import Fingerprint
from redrive.processing.outcomes.causes import Cause, Seen
from redrive.processing.outcomes.guard_log import GuardSeen


class Run:
    def __init__(self):
        self.app = App("shop", retry=RetryPolicy("5s 1h"))
        self.app.handler("orders")(lambda record, ctx: None)
        self.figures = Figures()
        self.statuses = {}
        self.shares = {}
        self.open = GuardSeen("orders", "open", 5000, 5000, "1f00", "away", {"failed": 3})
        self.closed = GuardSeen("payments", "suspect", 5000, 0, "", "", {})

    def guards(self):
        return [self.open, self.closed]

    def status(self, lane):
        return self.statuses.get(lane, {})

    def share(self, lane):
        return self.shares.get(lane, Ahead())

    def batch_seconds(self, lane):
        return 12.0 if lane == "main" else None


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr("redrive.engines.figures.time", lambda: 1.7e9)
    monkeypatch.setattr("redrive.engines.metrics.time", lambda: 90.0)
    run = Run()
    report = {"topic": "orders", "counts": {"done": 8, "park": 2}, "lateness": [], "trouble": ""}
    run.figures.add("main", [json.dumps(report)])
    late = {"topic": "shop.retry.5s", "counts": {"done": 2}, "lateness": [40, 700], "trouble": ""}
    run.figures.add("retry", [json.dumps(late)])
    run.figures.failed("retry", "a worker died")
    dead = Cause("bury", "orders", Fingerprint("exhausted", "ValueError"))
    run.figures.count_dead([Seen(dead, 2, 0, 0)], run.app.handlers)
    lost = ["orders[0]: gone"]
    run.statuses["main"] = {"refused": 3, "in_flight": 5, "lost": lost, "trouble": "x"}
    run.shares["main"] = Ahead({"orders": 7})
    run.shares["retry"] = Ahead(
        {"shop.retry.5s": 3, "shop.retry.1h": 0},
        {"shop.retry.5s": 2, "shop.retry.1h": 0},
        {"shop.retry.5s": 60_000},
        {"shop.retry.5s": 91_500},
    )
    return run


@pytest.fixture
def shown(run):
    registry = CollectorRegistry()
    registry.register(SparkCollector(run))
    return generate_latest(registry).decode().splitlines()


class Worker(Run):
    assigned = 0

    def __init__(self):
        super().__init__()
        self.counting = Counting(self.figures)
        self.oldest_handler = lambda: 12.0
        self.rejoining = SimpleNamespace(unassigned={"orders": 2})
        self.blocked_keys, self.most_behind = 1, 3


@pytest.mark.parametrize(
    ("collector", "run"), [(SparkCollector, Run()), (WorkerCollector, Worker())]
)
def test_all_that_are_declared_are_shown_and_no_others(collector, run):
    declared = {each.name: each.kind for each in collector.FIGURES}
    shown = {
        metric.name + ("_total" if metric.type == "counter" else ""): metric.type
        for metric in collector(run).collect()
    }
    assert shown == declared


@pytest.mark.parametrize(
    ("collector", "run"), [(SparkCollector, Run()), (WorkerCollector, Worker())]
)
def test_guards_are_shown_by_topic(collector, run):
    registry = CollectorRegistry()
    registry.register(collector(run))
    text = generate_latest(registry).decode()
    assert [line for line in text.splitlines() if line.startswith("redrive_guard")] == [
        'redrive_guard_state{app="shop",topic="orders"} 2.0',
        'redrive_guard_state{app="shop",topic="payments"} 0.0',
        'redrive_guard_since_timestamp_seconds{app="shop",fingerprint="1f00",topic="orders"} 5.0',
        'redrive_guard_probes_total{app="shop",result="passed",topic="orders"} 0.0',
        'redrive_guard_probes_total{app="shop",result="failed",topic="orders"} 3.0',
        'redrive_guard_probes_total{app="shop",result="passed",topic="payments"} 0.0',
        'redrive_guard_probes_total{app="shop",result="failed",topic="payments"} 0.0',
    ]


@pytest.mark.parametrize(
    "line",
    [
        'redrive_records_total{app="shop",lane="main",outcome="done",topic="orders"} 8.0',
        'redrive_records_total{app="shop",lane="main",outcome="park",topic="orders"} 2.0',
        'redrive_records_total{app="shop",lane="retry",outcome="done",topic="shop.retry.5s"} 2.0',
        'redrive_dead_records_total{app="shop",reason="exhausted",topic="orders"} 2.0',
        'redrive_batch_age_seconds{app="shop",lane="main"} 12.0',
        'redrive_batch_age_seconds{app="shop",lane="retry"} 0.0',
        'redrive_last_outcome_timestamp_seconds{app="shop",lane="main"} 1.7e+09',
        'redrive_last_batch_timestamp_seconds{app="shop",lane="retry"} 1.7e+09',
        'redrive_batches_total{app="shop",lane="main"} 1.0',
        'redrive_failed_batches_total{app="shop",lane="retry"} 1.0',
        'redrive_lag_records{app="shop",lane="main",topic="orders"} 7.0',
        'redrive_lag_records{app="shop",lane="retry",topic="shop.retry.5s"} 3.0',
        'redrive_in_flight_records{app="shop",lane="main"} 5.0',
        'redrive_refused_writes{app="shop"} 3.0',
        'redrive_trouble{app="shop",lane="main"} 1.0',
        'redrive_trouble{app="shop",lane="retry"} 0.0',
        'redrive_data_losses_total{app="shop",lane="main",partition="orders[0]"} 1.0',
        'redrive_parked_records{app="shop",topic="shop.retry.5s"} 3.0',
        'redrive_parked_records{app="shop",topic="shop.retry.1h"} 0.0',
        'redrive_due_records{app="shop",topic="shop.retry.5s"} 2.0',
        'redrive_due_records{app="shop",topic="shop.retry.1h"} 0.0',
        'redrive_due_age_seconds{app="shop",topic="shop.retry.5s"} 30.0',
        'redrive_due_age_seconds{app="shop",topic="shop.retry.1h"} 0.0',
        'redrive_next_due_timestamp_seconds{app="shop",topic="shop.retry.5s"} 91.5',
        'redrive_lateness_seconds_bucket{app="shop",le="0.05"} 1.0',
        'redrive_lateness_seconds_bucket{app="shop",le="0.5"} 1.0',
        'redrive_lateness_seconds_bucket{app="shop",le="1.0"} 2.0',
        'redrive_lateness_seconds_count{app="shop"} 2.0',
        'redrive_lateness_seconds_sum{app="shop"} 0.74',
        'redrive_early_records_total{app="shop"} 0.0',
    ],
)
def test_the_figures_of_spark_are_these(shown, line):
    assert line in shown
