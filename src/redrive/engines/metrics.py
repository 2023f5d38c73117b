"""Figures of a run, on either engine: read from the run when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from redrive.app import App
from redrive.engines.figures import BUCKETS, Figures
from redrive.engines.words import Lane
from redrive.metrics import Figure

RECORDS: Final = Figure(
    "redrive_records_total",
    "counter",
    "Records by what became of them, and by the topic that they were read from.",
    ("lane", "topic", "outcome"),
)
DEAD: Final = Figure(
    "redrive_dead_records_total",
    "counter",
    "Records written to the dead topic, by source topic and reason.",
    ("topic", "reason"),
)
LAST_OUTCOME: Final = Figure(
    "redrive_last_outcome_timestamp_seconds",
    "gauge",
    "When a record of the lane last had an outcome.",
    ("lane",),
)
LAG: Final = Figure(
    "redrive_lag_records", "gauge", "Records ahead of the progress, at most.", ("lane",)
)
IN_FLIGHT: Final = Figure(
    "redrive_in_flight_records", "gauge", "Of them, those under way, at most.", ("lane",)
)
PARKED: Final = Figure(
    "redrive_parked_records", "gauge", "Records that wait in a delay topic.", ("topic",)
)
NEXT_DUE: Final = Figure(
    "redrive_next_due_timestamp_seconds", "gauge", "When the next of them is due.", ("topic",)
)
LATENESS: Final = Figure(
    "redrive_lateness_seconds",
    "histogram",
    "Handler start minus due time, of records that were parked.",
)
EARLY: Final = Figure(
    "redrive_early_records_total", "counter", "Records handled before they were due."
)
LOSSES: Final = Figure(
    "redrive_data_losses_total",
    "counter",
    "How often records were found to be gone.",
    ("lane", "partition"),
)
TROUBLE: Final = Figure(
    "redrive_trouble", "gauge", "1 while a lane cannot go on, such as in an outage.", ("lane",)
)


class Source(Protocol):
    """A run, as far as its figures go."""

    @property
    def app(self) -> App: ...

    @property
    def figures(self) -> Figures: ...

    def status(self, lane: Lane) -> Mapping[str, Any]: ...


class RunCollector(Collector):
    """The figures that both engines have."""

    FIGURES: ClassVar[tuple[Figure, ...]] = (
        RECORDS,
        DEAD,
        LAST_OUTCOME,
        LAG,
        IN_FLIGHT,
        PARKED,
        NEXT_DUE,
        LATENESS,
        EARLY,
        LOSSES,
        TROUBLE,
    )

    def __init__(self, run: Source) -> None:
        self._run = run
        self._app = run.app.name

    def collect(self) -> Iterable[Metric]:
        """All figures, as they are now."""
        statuses = {lane: self._run.status(lane) for lane in self._run.figures.lanes}
        yield from self._work()
        yield from self._ahead(statuses)
        yield from self._parked(statuses.get("retry", {}))
        late = self._run.figures.lateness_so_far()
        bounds = [bound / 1000 for bound in BUCKETS]
        yield LATENESS.histogram(self._app, bounds, late.counts, late.total / 1000)
        yield EARLY.one(self._app, self._run.figures.early)

    def _work(self) -> Iterator[Metric]:
        figures = self._run.figures
        by_topic = {
            (lane, topic, outcome): count
            for lane in figures.lanes
            for (topic, outcome), count in figures.counts_by_topic(lane).items()
        }
        last = {lane: each.moved for lane, each in figures.lanes.items() if each.moved is not None}
        yield RECORDS.of(self._app, by_topic)
        yield DEAD.of(self._app, figures.dead())
        yield LAST_OUTCOME.of(self._app, last)

    def _ahead(self, statuses: Mapping[Lane, Mapping[str, Any]]) -> Iterator[Metric]:
        losses = Counter(
            (lane, lost.partition(": ")[0])
            for lane, status in statuses.items()
            for lost in status.get("lost", ())
        )
        for figure, name in ((LAG, "lag"), (IN_FLIGHT, "in_flight")):
            found = {lane: status.get(name, 0) for lane, status in statuses.items()}
            yield figure.of(self._app, found)
        troubles = {lane: float(bool(each.get("trouble"))) for lane, each in statuses.items()}
        yield TROUBLE.of(self._app, troubles)
        yield LOSSES.of(self._app, losses)

    def _parked(self, status: Mapping[str, Any]) -> Iterator[Metric]:
        parked = dict.fromkeys(self._run.app.delay_topics, 0) | status.get("parked", {})
        yield PARKED.of(self._app, parked)
        due = {topic: at / 1000 for topic, at in status.get("next_due", {}).items()}
        yield NEXT_DUE.of(self._app, due)
