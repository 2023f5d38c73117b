"""Prometheus metrics of a relay, and its health."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import psycopg

from redrive.ledger.backlog import Backlog, backlogs
from redrive.ledger.relay import Relay
from redrive.metrics import AppCollector, Figure
from redrive.serving import Health
from redrive.tuning import RELAY_METRICS_CONNECT_SECONDS, RELAY_SILENCE


class _Seen:
    """A snapshot of a relay; its backlog is queried on each scrape."""

    def __init__(self, relay: Relay) -> None:
        self.figures = relay.figures
        self.held = {topic: count for topic, (count, _) in relay.held_back.reasons().items()}
        self._backlog = _backlog(relay)

    def by_topic(self, of: Callable[[Backlog], float]) -> dict[str, float] | None:
        """A number of the backlog, by topic."""
        return None if self._backlog is None else {one.topic: of(one) for one in self._backlog}


class RelayCollector(AppCollector[_Seen]):
    """The metrics of one relay."""

    FIGURES: ClassVar[tuple[Figure[Any], ...]] = (
        Figure(
            "redrive_relay_backlog_rows",
            "gauge",
            "Rows waiting to be published.",
            ("topic",),
            lambda seen: seen.by_topic(lambda one: one.rows),
        ),
        Figure(
            "redrive_relay_backlog_age_seconds",
            "gauge",
            "How long the oldest row has been waiting.",
            ("topic",),
            lambda seen: seen.by_topic(lambda one: one.seconds),
        ),
        Figure(
            "redrive_relay_published_rows_total",
            "counter",
            "Rows published.",
            ("topic",),
            lambda seen: dict(seen.figures.published),
        ),
        Figure(
            "redrive_relay_batches_total",
            "counter",
            "Batches published and deleted from the outbox.",
            (),
            lambda seen: seen.figures.batches,
        ),
        Figure(
            "redrive_relay_repeated_batches_total",
            "counter",
            "Batches that were rolled back, and are published again with the same ids.",
            (),
            lambda seen: seen.figures.abandoned,
        ),
        Figure(
            "redrive_relay_refused_rows_total",
            "counter",
            "How often Kafka refused a row.",
            ("topic",),
            lambda seen: dict(seen.figures.refused),
        ),
        Figure(
            "redrive_relay_held",
            "gauge",
            "Topics, keys or rows held back after a refusal.",
            ("topic",),
            lambda seen: seen.held,
        ),
        Figure(
            "redrive_relay_errors_total",
            "counter",
            "How often the database or Kafka was unavailable.",
            ("cause",),
            lambda seen: dict(seen.figures.errors),
        ),
        Figure(
            "redrive_relay_shards",
            "gauge",
            "Shards that this relay owns.",
            (),
            lambda seen: seen.figures.shards,
        ),
        Figure(
            "redrive_relay_trouble",
            "gauge",
            "1 while the relay cannot publish.",
            (),
            lambda seen: float(bool(seen.figures.trouble)),
        ),
    )

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay.app, lambda: _Seen(relay))


def _backlog(relay: Relay) -> list[Backlog] | None:
    """What waits; None if the database does not answer, so that it is unknown."""
    settings = relay.settings
    try:
        with psycopg.connect(
            settings.dsn(), autocommit=True, connect_timeout=RELAY_METRICS_CONNECT_SECONDS
        ) as connection:
            return backlogs(connection, settings.ledger_schema, relay.app)
    except psycopg.Error:
        return None


def checks(relay: Relay) -> dict[str, Health]:
    """The health endpoints, and what is in the way; empty if nothing is."""

    def live() -> str:
        silence = time.monotonic() - relay.figures.alive
        return f"no sign of life for {silence:.0f} s" if silence > RELAY_SILENCE else ""

    return {"/live": live, "/ready": lambda: relay.figures.trouble}
