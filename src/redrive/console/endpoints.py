"""Endpoints: what runs say of themselves on their metrics ports, as far as the console was told."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from redrive.console.fetching import checked, fetch
from redrive.threads import begin
from redrive.tuning import CONSOLE_ENDPOINT_SECONDS

log: Final = logging.getLogger("redrive.console")

_SILENT: Final = "does not answer:"
_QUESTIONS: Final = 3
_LATENESS: Final = "redrive_lateness_seconds"
_GUARD: Final = "redrive_guard_state"
OPEN: Final = 2
"""The state of a guard that lets nothing but probes through; 1: it lets more and more through."""
_OF_RUNS: Final = "redrive_trouble"
"""A metric that every run has, and no relay."""
_SHOWN: Final[Mapping[str, tuple[str, bool, bool]]] = {
    "redrive_lag_records": ("{:,.0f} behind", True, False),
    "redrive_in_flight_records": ("{:,.0f} in flight", True, False),
    "redrive_assigned_partitions": ("{:,.0f} partitions", True, False),
    "redrive_unassigned_partitions": ("{:,.0f} partitions of nobody", False, True),
    "redrive_oldest_handler_seconds": ("a handler runs for {:,.0f} s", False, False),
    "redrive_relay_backlog_rows": ("{:,.0f} rows wait in the outbox", True, False),
    "redrive_refused_writes": ("{:,.0f} writes are refused", False, True),
    "redrive_data_losses_total": ("data was lost {:,.0f} times", False, True),
    "redrive_trouble": ("a lane cannot go on", False, True),
    "redrive_relay_trouble": ("the relay cannot publish", False, True),
}
"""In words; whether it is shown when it is 0, and whether it is bad when it is not."""


class Fact(NamedTuple):
    """One figure of a run, in words."""

    said: str
    bad: bool


class Health(NamedTuple):
    """What a health check answers."""

    good: bool
    said: str


@dataclass(frozen=True)
class Seen:
    """One run, worker or relay, by what it serves."""

    address: str
    live: Health
    ready: Health
    figures: Mapping[str, float] = field(default_factory=dict)
    """The sums of some metrics over their labels."""
    lanes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The same by lane, of those that have one."""
    guards: Mapping[str, float] = field(default_factory=dict)
    """By source topic: the states of guards."""
    lateness_p50: float | None = None
    """Seconds, since the look before; None: nothing was handled that had been parked."""
    lateness_p99: float | None = None
    apps: frozenset[str] | None = None
    """Whose records it handles: a relay handles none; None: not known."""

    def facts(self) -> list[Fact]:
        """Its figures in words, without those that are as they should be."""
        found = []
        for name, (words, always, is_bad) in _SHOWN.items():
            for lane, number in self._by_lane(name):
                if number or always:
                    said = words.format(number) + (f" ({lane})" if lane else "")
                    found.append(Fact(said, bool(is_bad and number)))
        found += [Fact(said, state == OPEN) for said, state in self.outages()]
        return found

    def outages(self) -> list[tuple[str, float]]:
        """What guards do that are not shut, in words, with their states."""
        words = {1: "lets records through again", OPEN: "is open"}
        return [
            (f"the guard of {topic} {words[int(state)]}", state)
            for topic, state in self.guards.items()
            if state in words
        ]

    def _by_lane(self, name: str) -> Iterator[tuple[str, float]]:
        """A figure, by lane if there are several: they fall behind one without the other."""
        lanes = self.lanes.get(name, {})
        if len(lanes) > 1:
            yield from lanes.items()
        elif name in self.figures:
            yield "", self.figures[name]

    def runs(self, app: str) -> bool:
        """Whether it is ready to handle records of that app, as far as is known."""
        return self.ready.good and (self.apps is None or app in self.apps)


Buckets = dict[float, float]
"""By upper bound: how many, up to there."""


class Endpoints:
    """Asks those that were named when the console was started, and nobody else."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = [checked("--watch", each) for each in addresses]
        self._before: dict[str, Buckets] = {}
        self._asked: dict[str, Future[Seen]] = {}

    @property
    def any(self) -> bool:
        """Whether any was named."""
        return bool(self._addresses)

    def look(self) -> tuple[Seen, ...]:
        """What all of them say now; side by side, so that silent ones keep no other waiting."""
        for address in self._addresses:
            asked = self._asked.get(address)
            if asked is None or asked.done():  # else it is asked still, and not once more
                ask = partial(self._look, address)
                self._asked[address] = begin(ask, name=f"redrive-console-{address}")
        wait(self._asked.values(), _QUESTIONS * CONSOLE_ENDPOINT_SECONDS)
        return tuple(self._seen(each) for each in self._addresses)

    def _seen(self, address: str) -> Seen:
        asked = self._asked[address]
        if asked.done():
            return asked.result()
        late = Health(good=False, said="does not answer in time")
        return Seen(address, late, late)

    def _look(self, address: str) -> Seen:
        live = self._check(f"{address}/live")
        if live.said.startswith(_SILENT):
            return Seen(address, live, live)
        ready = self._check(f"{address}/ready")
        try:
            _, text = fetch(f"{address}/metrics")
            told, buckets = _read(text)
        except Exception as error:  # noqa: BLE001 -- any server may be there, and answer anything
            log.info("the metrics of %s cannot be had: %r", address, error)
            return Seen(address, live, ready)
        before = self._before.get(address, {})
        self._before[address] = buckets
        since = {bound: count - before.get(bound, 0) for bound, count in buckets.items()}
        if any(count < 0 for count in since.values()):
            since = buckets  # it was restarted
        late = quantile(since, 0.5), quantile(since, 0.99)
        return Seen(address, live, ready, told.figures, told.lanes, told.guards, *late, told.apps)

    def _check(self, url: str) -> Health:
        try:
            code, text = fetch(url)
        except Exception as error:  # noqa: BLE001 -- what is there need not speak HTTP
            why = getattr(error, "reason", error) if isinstance(error, OSError) else repr(error)
            return Health(good=False, said=f"{_SILENT} {why}"[:500])
        return Health(code == 200, text.strip()[:500])


class _Told(NamedTuple):
    figures: dict[str, float]
    lanes: dict[str, dict[str, float]]
    guards: dict[str, float]
    apps: frozenset[str]


def _read(text: str) -> tuple[_Told, Buckets]:
    """Figures, with the apps that are run; and lateness."""
    figures: dict[str, float] = {}
    lanes: dict[str, dict[str, float]] = {}
    guards: dict[str, float] = {}
    buckets: Buckets = {}
    apps = set()
    for family in text_string_to_metric_families(text):
        if family.name in _SHOWN:
            figures[family.name] = 0.0  # what has no sample is known, too: an empty outbox
        for name, labels, value, *_ in family.samples:
            if name == f"{_LATENESS}_bucket":
                bound = float(labels["le"])
                buckets[bound] = buckets.get(bound, 0) + value
            elif name == _GUARD:
                topic = labels.get("topic", "")
                guards[topic] = max(value, guards.get(topic, 0))
            elif name in _SHOWN:
                figures[name] = figures.get(name, 0) + value
                if "lane" in labels:
                    of = lanes.setdefault(name, {})
                    of[labels["lane"]] = of.get(labels["lane"], 0) + value
            if name == _OF_RUNS:
                apps.add(labels.get("app", ""))
    return _Told(figures, lanes, guards, frozenset(apps)), buckets


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """The bound below which that share lies; None if nothing was counted."""
    ordered = sorted(buckets.items())
    if not ordered or ordered[-1][1] <= 0:
        return None
    wanted = ordered[-1][1] * share
    finite = [bound for bound, _ in ordered if bound != float("inf")]
    for bound, count in ordered:
        if count >= wanted:
            return min(bound, max(finite, default=bound))
    return None
