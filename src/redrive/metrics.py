"""Prometheus figures of a run: read from the run when they are asked for, kept nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from redrive.app import App
from redrive.engines.figures import BUCKETS, Figures
from redrive.engines.words import Lane


class Source(Protocol):
    """A run, as far as its figures go; a handle is one."""

    @property
    def app(self) -> App: ...

    @property
    def figures(self) -> Figures: ...

    def status(self, lane: Lane) -> Mapping[str, Any]: ...


class RunCollector(Collector):
    """The figures of one run. For a registry of your own: `registry.register(...)`."""

    def __init__(self, run: Source) -> None:
        self._run = run
        self._app = run.app.name

    def collect(self) -> Iterable[Metric]:
        """All figures, as they are now."""
        statuses = {lane: self._run.status(lane) for lane in self._run.figures.lanes}
        yield from self._work()
        yield from self._ahead(statuses)
        yield from self._parked(statuses.get("retry", {}))
        yield self._lateness()
        early = CounterMetricFamily(
            "redrive_early_records", "Records handled before they were due.", labels=["app"]
        )
        early.add_metric([self._app], self._run.figures.early)
        yield early

    def _work(self) -> Iterator[Metric]:
        figures = self._run.figures
        records = self._counter("redrive_records", "Records by what became of them.", "outcome")
        batches = self._counter("redrive_batches", "Batches that ended.")
        failed = self._counter("redrive_failed_batches", "Batches in which a worker died.")
        for lane, done in figures.lanes.items():
            for outcome, count in figures.counts(lane).items():
                records.add_metric([self._app, lane, outcome], count)
            batches.add_metric([self._app, lane], done.batches)
            failed.add_metric([self._app, lane], done.failed_batches)
        yield from (records, batches, failed)

    def _ahead(self, statuses: Mapping[Lane, Mapping[str, Any]]) -> Iterator[Metric]:
        labels = ["app", "lane"]
        lag = GaugeMetricFamily(
            "redrive_lag_records", "Records ahead of the progress, at most.", labels=labels
        )
        in_flight = GaugeMetricFamily(
            "redrive_in_flight_records", "Records of the batch under way, at most.", labels=labels
        )
        trouble = GaugeMetricFamily(
            "redrive_trouble", "1 while a lane cannot plan, such as in an outage.", labels=labels
        )
        losses = self._counter(
            "redrive_data_losses", "How often records were found to be gone.", "partition"
        )
        for lane, status in statuses.items():
            lag.add_metric([self._app, lane], status.get("lag", 0))
            in_flight.add_metric([self._app, lane], status.get("in_flight", 0))
            trouble.add_metric([self._app, lane], float(bool(status.get("trouble"))))
            where = Counter(told.partition(": ")[0] for told in status.get("lost", ()))
            for place, count in where.items():
                losses.add_metric([self._app, lane, place], count)
        yield from (lag, in_flight, trouble, losses)

    def _parked(self, status: Mapping[str, Any]) -> Iterator[Metric]:
        labels = ["app", "topic"]
        parked = GaugeMetricFamily(
            "redrive_parked_records", "Records that wait in a delay topic.", labels=labels
        )
        due = GaugeMetricFamily(
            "redrive_next_due_timestamp_seconds", "When the next of them is due.", labels=labels
        )
        for topic in self._run.app.delay_topics:
            parked.add_metric([self._app, topic], status.get("parked", {}).get(topic, 0))
        for topic, at in status.get("next_due", {}).items():
            due.add_metric([self._app, topic], at / 1000)
        yield from (parked, due)

    def _lateness(self) -> Metric:
        found = self._run.figures.lateness_so_far()
        bounds = [str(bound / 1000) for bound in BUCKETS] + ["+Inf"]
        reached, buckets = 0, []
        for bound, count in zip(bounds, found.counts, strict=True):
            reached += count
            buckets.append((bound, reached))
        lateness = HistogramMetricFamily(
            "redrive_lateness_seconds",
            "Handler start minus due time, of records that were parked.",
            labels=["app"],
        )
        lateness.add_metric([self._app], buckets, found.total / 1000)
        return lateness

    def _counter(self, name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, text, labels=["app", "lane", *labels])
