"""Prometheus figures of a relay, and whether it is well."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

import psycopg
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from redrive.ledger.backlog import backlogs
from redrive.ledger.relay import Relay
from redrive.metrics import Figure
from redrive.serving import Health

_SILENCE: Final = 30.0
_CONNECT_SECONDS: Final = 3


_BACKLOG: Final = Figure(
    "redrive_relay_backlog_rows", "gauge", "Rows that wait to be published.", ("topic",)
)
_BACKLOG_AGE: Final = Figure(
    "redrive_relay_backlog_age_seconds", "gauge", "How long the oldest has waited.", ("topic",)
)
_PUBLISHED: Final = Figure(
    "redrive_relay_published_rows_total", "counter", "Rows published.", ("topic",)
)
_BATCHES: Final = Figure("redrive_relay_batches_total", "counter", "Batches published and deleted.")
_REPEATED: Final = Figure(
    "redrive_relay_repeated_batches_total",
    "counter",
    "Batches that were taken back, and are published again with the same ids.",
)
_REFUSED: Final = Figure(
    "redrive_relay_refused_rows_total", "counter", "Refusals of rows by Kafka.", ("topic",)
)
_HELD: Final = Figure(
    "redrive_relay_held", "gauge", "Topics, keys or rows that wait after a refusal.", ("topic",)
)
_ERRORS: Final = Figure(
    "redrive_relay_errors_total",
    "counter",
    "How often the database or Kafka was away.",
    ("cause",),
)
_SHARDS: Final = Figure("redrive_relay_shards", "gauge", "Shards that this relay owns.")
_TROUBLE: Final = Figure("redrive_relay_trouble", "gauge", "1 while it cannot publish.")


class RelayCollector(Collector):
    """The figures of one relay; the backlog is asked for when they are."""

    FIGURES: ClassVar[tuple[Figure, ...]] = (
        _BACKLOG,
        _BACKLOG_AGE,
        _PUBLISHED,
        _BATCHES,
        _REPEATED,
        _REFUSED,
        _HELD,
        _ERRORS,
        _SHARDS,
        _TROUBLE,
    )

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._app = relay.app

    def describe(self) -> Iterable[Metric]:
        """Without asking the database: nobody waits for it before the first question."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All figures, as they are now."""
        figures, app = self._relay.figures, self._app
        for figure, values in (
            (_PUBLISHED, figures.published),
            (_REFUSED, figures.refused),
            (_ERRORS, figures.errors),
        ):
            yield figure.of(app, dict(values))
        yield _BATCHES.one(app, figures.batches)
        yield _REPEATED.one(app, figures.abandoned)
        yield _SHARDS.one(app, figures.shards)
        yield _TROUBLE.one(app, float(bool(figures.trouble)))
        held = {topic: count for topic, (count, _) in self._relay.refusals.reasons().items()}
        yield _HELD.of(app, held)
        yield from self._backlog()

    def _backlog(self) -> Iterator[Metric]:
        settings = self._relay.settings
        try:
            with psycopg.connect(
                settings.dsn(), autocommit=True, connect_timeout=_CONNECT_SECONDS
            ) as connection:
                found = backlogs(connection, settings.ledger_schema, self._app)
        except psycopg.Error:
            return  # absent is honest: nobody knows
        yield _BACKLOG.of(self._app, {one.topic: one.rows for one in found})
        yield _BACKLOG_AGE.of(self._app, {one.topic: one.seconds for one in found})


def checks(relay: Relay) -> dict[str, Health]:
    """Where somebody asks how the relay is, and what is in the way; empty when nothing is."""

    def live() -> str:
        silence = time.monotonic() - relay.figures.alive
        return f"nothing heard for {silence:.0f} s" if silence > _SILENCE else ""

    return {"/live": live, "/ready": lambda: relay.figures.trouble}
