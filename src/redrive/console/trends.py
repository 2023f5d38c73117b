"""Trends: the last hours of an app, in memory while the console runs. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from redrive.tuning import CONSOLE_POINT_SECONDS, CONSOLE_POINTS

NAMES: Final = ("handled", "parked", "dead", "lag", "lateness")


class Point(NamedTuple):
    """What was seen at a time, in milliseconds since 1970; None: not known."""

    at: int
    handled: float | None = None
    """Records per second."""
    parked: float | None = None
    dead: float | None = None
    lag: float | None = None
    lateness: float | None = None
    """Seconds, of 99 in a hundred."""


class Trends:
    """Points at even distances; what is seen more often is left out, the oldest is forgotten."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points: deque[Point] = deque(points, maxlen=CONSOLE_POINTS)

    def add(self, point: Point) -> None:
        """Note what was seen."""
        last = self._points[-1].at if self._points else None
        if last is None or point.at - last >= CONSOLE_POINT_SECONDS * 1000:
            self._points.append(point)

    def begin_with(self, points: Iterable[Point]) -> None:
        """Put what was before what is known."""
        known = [*self._points]
        first = known[0].at if known else None
        earlier = (each for each in points if first is None or each.at < first)
        self._points = deque([*earlier, *known], maxlen=CONSOLE_POINTS)

    def series(self, name: str) -> list[tuple[int, float]]:
        """One of the numbers over time."""
        found = ((each.at, getattr(each, name)) for each in list(self._points))
        return [(at, value) for at, value in found if value is not None]


def chart(series: Sequence[tuple[int, float]], width: int, height: int) -> str:
    """The points of an SVG polyline; empty if there are not two of them."""
    if len(series) < 2:
        return ""
    first, last = series[0][0], series[-1][0]
    top = max(*(value for _, value in series), 1e-9)
    span = max(last - first, 1)
    return " ".join(
        f"{(at - first) / span * width:.1f},{height - value / top * (height - 2) - 1:.1f}"
        for at, value in series
    )
