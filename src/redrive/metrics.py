"""Metrics for Prometheus, as data: what each is called, what it means and how it is read.

A test compares the tables of metrics in the docs with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

_Seen = TypeVar("_Seen")
_SUFFIX: Final = "_total"


class Buckets(NamedTuple):
    """The numbers of a histogram; the last count is for values beyond all bounds."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


Numbers = float | Buckets | Mapping[str, float] | Mapping[tuple[str, ...], float]
"""One number, or several by label values (without the app's)."""


@dataclass(frozen=True, slots=True)
class Figure(Generic[_Seen]):
    """One metric; its numbers are read on each scrape, and stored nowhere."""

    name: str
    """The name that is served; counters end in `_total`."""
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...]
    """Besides `app`, which all have."""
    read: Callable[[_Seen], Numbers | None]
    """None: unknown, so the metric is absent."""

    def shown(self, app: str, numbers: Numbers) -> Metric:
        """The metric with its numbers."""
        labels = ["app", *self.labels]
        if isinstance(numbers, Buckets):
            histogram = HistogramMetricFamily(self.name, self.text, labels=labels)
            histogram.add_metric([app], list(_reached(numbers)), numbers.total)
            return histogram
        family: CounterMetricFamily | GaugeMetricFamily
        if self.kind == "counter":
            family = CounterMetricFamily(self.name.removesuffix(_SUFFIX), self.text, labels=labels)
        else:
            family = GaugeMetricFamily(self.name, self.text, labels=labels)
        several = numbers if isinstance(numbers, Mapping) else {(): numbers}
        for found, value in several.items():
            family.add_metric([app, *((found,) if isinstance(found, str) else found)], value)
        return family


class AppCollector(Collector, Generic[_Seen]):
    """The metrics of one app, read on each scrape."""

    FIGURES: ClassVar[tuple[Figure[Any], ...]]

    def __init__(self, app: str, look: Callable[[], _Seen]) -> None:
        self._app = app
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry can hold several apps, and reads nothing before the first scrape."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All metrics, as they are now."""
        seen = self._look()
        for figure in self.FIGURES:
            numbers = figure.read(seen)
            if numbers is not None:
                yield figure.shown(self._app, numbers)


def _reached(numbers: Buckets) -> Iterator[tuple[str, float]]:
    reached = 0
    for bound, count in zip([*map(str, numbers.bounds), "+Inf"], numbers.counts, strict=True):
        reached += count
        yield bound, reached
