"""Prometheus: the hours before the console was started, if it knows where to ask."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from redrive.console.fetching import fetch
from redrive.console.trends import Point
from redrive.tuning import CONSOLE_POINT_SECONDS, CONSOLE_POINTS

log: Final = logging.getLogger("redrive.console")

QUERIES: Final[Mapping[str, str]] = {
    "handled": 'sum(rate(redrive_records_total{app="%s"}[1m]))',
    "parked": 'sum(redrive_parked_records{app="%s"})',
    "dead": 'sum(rate(redrive_dead_records_total{app="%s"}[1m]))',
    "lag": 'sum(redrive_lag_records{app="%s",lane="main"})',
    "lateness": (
        "histogram_quantile(0.99,"
        ' sum by (le) (rate(redrive_lateness_seconds_bucket{app="%s"}[5m])))'
    ),
}
"""What is asked for, by the name of the chart; of dead letters, how many died per second."""


def past(
    address: str,
    app: str,
    now: int,
    dead: int,
    get: Callable[[str], tuple[int, str]] = lambda url: fetch(url, "application/json"),
) -> list[Point]:
    """What Prometheus knows of an app, up to `now` in milliseconds; nothing if it cannot be had.

    `dead`: how many letters there are now.
    """
    times: dict[int, dict[str, float]] = {}
    for name, query in QUERIES.items():
        series = _series(address, query % app, now, get)
        for at, value in _counted_back(series, dead) if name == "dead" else series:
            times.setdefault(at, {})[name] = value
    return [Point(at, **values) for at, values in sorted(times.items())]


def _counted_back(series: list[tuple[int, float]], now: float) -> list[tuple[int, float]]:
    """How many there were at each time, from how many there are now and how quickly they came."""
    found = []
    for at, rate in reversed(series):
        found.append((at, now))
        now = max(0.0, now - rate * CONSOLE_POINT_SECONDS)
    return found


def _series(
    address: str, query: str, now: int, get: Callable[[str], tuple[int, str]]
) -> list[tuple[int, float]]:
    step = CONSOLE_POINT_SECONDS
    end = now // 1000 // step * step
    asked = {"query": query, "start": end - step * CONSOLE_POINTS, "end": end, "step": step}
    try:
        status, text = get(f"{address}/api/v1/query_range?{urlencode(asked)}")
        answer: Any = json.loads(text)
        if status != 200 or answer["status"] != "success":
            raise ValueError(answer.get("error", status))  # noqa: TRY301 -- said like the others
        found = answer["data"]["result"]
        pairs = found[0]["values"] if found else []
        series = [(int(float(at) * 1000), float(value)) for at, value in pairs]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        log.warning("Prometheus at %s: %s cannot be had: %s", address, query, error)
        return []
    return [(at, value) for at, value in series if value == value]  # noqa: PLR0124 -- not a number
