"""Prometheus figures of a relay, and whether it is well."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from redrive.ledger.backlog import backlogs
from redrive.ledger.relay import Relay
from redrive.serving import Health

_SILENCE: Final = 30.0
_CONNECT_SECONDS: Final = 3


class RelayCollector(Collector):
    """The figures of one relay; the backlog is asked for when they are."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def describe(self) -> Iterable[Metric]:
        """Without asking the database: nobody waits for it before the first question."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All figures, as they are now."""
        figures = self._relay.figures
        yield self._counter("published_rows", "Rows published.", "topic", figures.published)
        yield self._counter("refused_rows", "Refusals of rows by Kafka.", "topic", figures.refused)
        yield self._counter(
            "errors", "How often the database or Kafka was away.", "cause", figures.errors
        )
        yield self._counter("batches", "Batches published and deleted.", "", {"": figures.batches})
        yield self._counter(
            "repeated_batches",
            "Batches that were taken back, and are published again with the same ids.",
            "",
            {"": figures.abandoned},
        )
        yield self._gauge("shards", "Shards that this relay owns.", "", {"": figures.shards})
        yield self._gauge(
            "trouble", "1 while it cannot publish.", "", {"": float(bool(figures.trouble))}
        )
        held = {topic: count for topic, (count, _) in self._relay.refusals.reasons().items()}
        yield self._gauge("held", "Topics, keys or rows that wait after a refusal.", "topic", held)
        yield from self._backlog()

    def _backlog(self) -> Iterator[Metric]:
        settings = self._relay.settings
        try:
            with psycopg.connect(
                settings.dsn(), autocommit=True, connect_timeout=_CONNECT_SECONDS
            ) as connection:
                found = backlogs(connection, settings.ledger_schema, self._relay.app)
        except psycopg.Error:
            return  # absent is honest: nobody knows
        rows = {one.topic: one.rows for one in found}
        ages = {one.topic: one.seconds for one in found}
        yield self._gauge("backlog_rows", "Rows that wait to be published.", "topic", rows)
        yield self._gauge("backlog_age_seconds", "How long the oldest has waited.", "topic", ages)

    def _counter(
        self, name: str, text: str, label: str, values: Mapping[str, float]
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(f"redrive_relay_{name}", text, labels=_labels(label))
        for value, count in dict(values).items():
            family.add_metric(self._of(label, value), count)
        return family

    def _gauge(
        self, name: str, text: str, label: str, values: Mapping[str, float]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"redrive_relay_{name}", text, labels=_labels(label))
        for value, count in dict(values).items():
            family.add_metric(self._of(label, value), count)
        return family

    def _of(self, label: str, value: str) -> list[str]:
        return [self._relay.app, value] if label else [self._relay.app]


def checks(relay: Relay) -> dict[str, Health]:
    """Where somebody asks how the relay is, and what is in the way; empty when nothing is."""

    def live() -> str:
        silence = time.monotonic() - relay.figures.alive
        return f"nothing heard for {silence:.0f} s" if silence > _SILENCE else ""

    return {"/live": live, "/ready": lambda: relay.figures.trouble}


def _labels(label: str) -> list[str]:
    return ["app", label] if label else ["app"]
