"""Metrics of a run, on either engine: read from the run on each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from time import time
from typing import Any, ClassVar, Final, Protocol

from redrive.app import App
from redrive.engines.ahead import Ahead
from redrive.engines.figures import BUCKETS, Figures
from redrive.engines.words import LaneName
from redrive.metrics import AppCollector, Buckets, Figure
from redrive.processing.outcomes.guard_log import GuardSeen


class Source(Protocol):
    """A run, as far as its metrics are concerned."""

    @property
    def app(self) -> App: ...

    @property
    def figures(self) -> Figures: ...

    def status(self, lane: LaneName) -> Mapping[str, Any]: ...

    def share(self, lane: LaneName) -> Ahead: ...

    def guards(self) -> list[GuardSeen]: ...


STATES: Final = {"closed": 0.0, "suspect": 0.0, "ramp": 1.0, "open": 2.0}
"""Guards as numbers; whoever sums them up knows whether one is open."""


class Seen:
    """A snapshot of a run: all metrics of one scrape are from the same moment."""

    def __init__(self, run: Any) -> None:
        self.run = run
        """Of either engine: each has metrics that only it provides."""
        self.figures: Figures = run.figures
        self.lanes = run.figures.lanes
        self.statuses = {lane: run.status(lane) for lane in self.lanes}
        self.shares = {lane: run.share(lane) for lane in self.lanes}
        self.waiting = self.shares["retry"]
        self.guards: list[GuardSeen] = run.guards()

    def records(self) -> dict[tuple[str, ...], float]:
        """By lane, topic and outcome."""
        return {
            (lane, topic, outcome): count
            for lane in self.lanes
            for (topic, outcome), count in self.figures.counts_by_topic(lane).items()
        }

    def lag(self) -> dict[tuple[str, ...], float]:
        """By lane and topic."""
        return {
            (lane, topic): count
            for lane, share in self.shares.items()
            for topic, count in share.lag.items()
        }

    def due_age(self) -> dict[str, float]:
        """How many seconds the oldest due record has been due, by delay topic."""
        now, since = time(), self.waiting.due_since
        return {
            topic: max(0.0, now - since[topic] / 1000) if topic in since else 0.0
            for topic in self.waiting.due
        }

    def lateness(self) -> Buckets:
        """For parked records that were handled, in seconds."""
        late = self.figures.lateness_so_far()
        return Buckets([bound / 1000 for bound in BUCKETS], late.counts, late.total / 1000)

    def outages(self) -> dict[tuple[str, ...], float]:
        """When those were seen for which guards are open, by topic and fingerprint."""
        return {(each.topic, each.cause): each.opened / 1000 for each in self.guards if each.opened}

    def probes(self) -> dict[tuple[str, ...], float]:
        """By topic and result."""
        return {
            (each.topic, result): each.probes.get(result, 0)
            for each in self.guards
            for result in ("passed", "failed")
        }

    def losses(self) -> Mapping[tuple[str, ...], float]:
        """By lane and partition."""
        return Counter(
            (lane, lost.partition(": ")[0])
            for lane, status in self.statuses.items()
            for lost in status.get("lost", ())
        )


class RunCollector(AppCollector[Seen]):
    """The metrics that both engines have."""

    FIGURES: ClassVar[tuple[Figure[Any], ...]] = (
        Figure(
            "redrive_records_total",
            "counter",
            "Records by outcome, and by the topic that they were read from.",
            ("lane", "topic", "outcome"),
            Seen.records,
        ),
        Figure(
            "redrive_dead_records_total",
            "counter",
            "Records written to the dead topic, by source topic and reason.",
            ("topic", "reason"),
            lambda seen: seen.figures.dead(),
        ),
        Figure(
            "redrive_last_outcome_timestamp_seconds",
            "gauge",
            "When a record of the lane last got an outcome.",
            ("lane",),
            lambda seen: known({lane: each.moved for lane, each in seen.lanes.items()}),
        ),
        Figure(
            "redrive_lag_records",
            "gauge",
            "Lag: records beyond the committed offsets, at most.",
            ("lane", "topic"),
            Seen.lag,
        ),
        Figure(
            "redrive_in_flight_records",
            "gauge",
            "Of these, the records in flight, at most.",
            ("lane",),
            lambda seen: {lane: each.get("in_flight", 0) for lane, each in seen.statuses.items()},
        ),
        Figure(
            "redrive_parked_records",
            "gauge",
            "Records waiting in a delay topic, due or not.",
            ("topic",),
            lambda seen: seen.waiting.lag,
        ),
        Figure(
            "redrive_due_records",
            "gauge",
            "Of these, the records that are due and not handled yet.",
            ("topic",),
            lambda seen: seen.waiting.due,
        ),
        Figure(
            "redrive_due_age_seconds",
            "gauge",
            "How long the oldest of these has been due; 0 if none is.",
            ("topic",),
            Seen.due_age,
        ),
        Figure(
            "redrive_next_due_timestamp_seconds",
            "gauge",
            "When the next record that is not due yet becomes due.",
            ("topic",),
            lambda seen: {topic: at / 1000 for topic, at in seen.waiting.next_due.items()},
        ),
        Figure(
            "redrive_lateness_seconds",
            "histogram",
            "Handler start minus due time, for records that were parked.",
            (),
            Seen.lateness,
        ),
        Figure(
            "redrive_early_records_total",
            "counter",
            "Records handled before they were due.",
            (),
            lambda seen: seen.figures.early,
        ),
        Figure(
            "redrive_data_losses_total",
            "counter",
            "How often data loss was detected.",
            ("lane", "partition"),
            Seen.losses,
        ),
        Figure(
            "redrive_refused_writes",
            "gauge",
            "Records that stay where they are because their writes were refused.",
            (),
            lambda seen: sum(each.get("refused", 0) for each in seen.statuses.values()),
        ),
        Figure(
            "redrive_trouble",
            "gauge",
            "1 while a lane cannot make progress, for example during an outage.",
            ("lane",),
            lambda seen: {
                lane: float(bool(each.get("trouble"))) for lane, each in seen.statuses.items()
            },
        ),
        Figure(
            "redrive_guard_state",
            "gauge",
            "Whether a handler's guard is open: 0 no, 1 letting records through again, 2 yes.",
            ("topic",),
            lambda seen: {each.topic: STATES[each.state] for each in seen.guards},
        ),
        Figure(
            "redrive_guard_since_timestamp_seconds",
            "gauge",
            "When the outage was seen for which a handler's guard is open.",
            ("topic", "fingerprint"),
            Seen.outages,
        ),
        Figure(
            "redrive_guard_probes_total",
            "counter",
            "Calls that a handler's guard has let through while it was open.",
            ("topic", "result"),
            Seen.probes,
        ),
    )

    def __init__(self, run: Source) -> None:
        super().__init__(run.app.name, lambda: Seen(run))


def known(numbers: Mapping[LaneName, float | None]) -> dict[str, float]:
    """Without the lanes for which it is unknown."""
    return {lane: number for lane, number in numbers.items() if number is not None}
