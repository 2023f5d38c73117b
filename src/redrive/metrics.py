"""Figures as Prometheus has them: what each is called and means, as data.

The tables of figures in the docs are compared with these by a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

_Labels = TypeVar("_Labels", bound="str | tuple[str, ...]")
"""The values of a figure's labels, besides the app's."""
_SUFFIX: Final = "_total"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; its numbers are read when they are asked for, and kept nowhere."""

    name: str
    """As it is served; counters end in `_total`."""
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    """Besides `app`, which all have."""

    def of(self, app: str, values: Mapping[_Labels, float]) -> Metric:
        """The figure with its numbers, by the values of its labels."""
        labels = ["app", *self.labels]
        family: CounterMetricFamily | GaugeMetricFamily
        if self.kind == "counter":
            family = CounterMetricFamily(self.name.removesuffix(_SUFFIX), self.text, labels=labels)
        else:
            family = GaugeMetricFamily(self.name, self.text, labels=labels)
        for found, value in values.items():
            family.add_metric([app, *((found,) if isinstance(found, str) else found)], value)
        return family

    def one(self, app: str, value: float) -> Metric:
        """The figure, where it has one number."""
        return self.of(app, {(): value})

    def histogram(
        self, app: str, bounds: Iterable[float], counts: Sequence[int], total: float
    ) -> Metric:
        """The figure, where it is a histogram; the last count is of what is beyond all bounds."""
        reached, buckets = 0, []
        for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
            reached += count
            buckets.append((bound, reached))
        family = HistogramMetricFamily(self.name, self.text, labels=["app"])
        family.add_metric([app], buckets, total)
        return family
