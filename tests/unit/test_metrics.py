"""Prometheus figures: right names, right labels, right numbers."""

from __future__ import annotations

import json

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from redrive import App, RetryPolicy
from redrive.engines.figures import Figures
from redrive.metrics import RunCollector


class Run:
    def __init__(self):
        self.app = App("shop", retry=RetryPolicy("5s 1h"))
        self.app.handler("orders")(lambda record, ctx: None)
        self.figures = Figures()
        self.statuses = {}

    def status(self, lane):
        return self.statuses.get(lane, {})


@pytest.fixture
def run():
    run = Run()
    report = {"counts": {"done": 8, "park": 2}, "lateness": [], "trouble": ""}
    run.figures.add("main", [json.dumps(report)])
    late = {"counts": {"done": 2}, "lateness": [40, 700], "trouble": ""}
    run.figures.add("retry", [json.dumps(late)])
    run.figures.failed("retry", "a worker died")
    run.statuses["main"] = {"lag": 7, "in_flight": 5, "lost": ["orders[0]: gone"], "trouble": "x"}
    run.statuses["retry"] = {"parked": {"shop.retry.5s": 3}, "next_due": {"shop.retry.5s": 1500}}
    return run


@pytest.fixture
def shown(run):
    registry = CollectorRegistry()
    registry.register(RunCollector(run))
    return generate_latest(registry).decode().splitlines()


@pytest.mark.parametrize(
    "line",
    [
        'redrive_records_total{app="shop",lane="main",outcome="done"} 8.0',
        'redrive_records_total{app="shop",lane="main",outcome="park"} 2.0',
        'redrive_records_total{app="shop",lane="retry",outcome="done"} 2.0',
        'redrive_batches_total{app="shop",lane="main"} 1.0',
        'redrive_failed_batches_total{app="shop",lane="retry"} 1.0',
        'redrive_lag_records{app="shop",lane="main"} 7.0',
        'redrive_in_flight_records{app="shop",lane="main"} 5.0',
        'redrive_trouble{app="shop",lane="main"} 1.0',
        'redrive_trouble{app="shop",lane="retry"} 0.0',
        'redrive_data_losses_total{app="shop",lane="main",partition="orders[0]"} 1.0',
        'redrive_parked_records{app="shop",topic="shop.retry.5s"} 3.0',
        'redrive_parked_records{app="shop",topic="shop.retry.1h"} 0.0',
        'redrive_next_due_timestamp_seconds{app="shop",topic="shop.retry.5s"} 1.5',
        'redrive_lateness_seconds_bucket{app="shop",le="0.05"} 1.0',
        'redrive_lateness_seconds_bucket{app="shop",le="0.5"} 1.0',
        'redrive_lateness_seconds_bucket{app="shop",le="1.0"} 2.0',
        'redrive_lateness_seconds_count{app="shop"} 2.0',
        'redrive_lateness_seconds_sum{app="shop"} 0.74',
        'redrive_early_records_total{app="shop"} 0.0',
    ],
)
def test_the_figures_are_these(shown, line):
    assert line in shown
