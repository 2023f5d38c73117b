"""Durations as people write them ("1h30m", "250ms"), kept as whole milliseconds.

Milliseconds, because Kafka's timestamps are: nothing is rounded on the way to a record and back.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from redrive.errors import ConfigurationError

Duration = str | int | float | timedelta
"""A string ("1h30m"), seconds as a number, or a timedelta."""

_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_WHOLE: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[dhms]))+")
_LONGEST: Final = 36_500 * _UNITS["d"]


def milliseconds(duration: Duration) -> int:
    """The duration in whole milliseconds; the error says what was given and what is expected."""
    if isinstance(duration, bool):
        raise _mistake(duration)
    if isinstance(duration, timedelta):
        exact = duration.total_seconds() * 1000
    elif isinstance(duration, int | float):
        exact = duration * 1000
    elif isinstance(duration, str):
        exact = _parse(duration)
    else:
        raise _mistake(duration)
    if not 0 <= exact <= _LONGEST:  # also false for NaN
        raise _mistake(duration)
    return round(exact)


def optional_milliseconds(name: str, given: Duration | None, problems: list[str]) -> int | None:
    """The duration in milliseconds; a mistake is appended to the problems."""
    if given is None:
        return None
    try:
        return milliseconds(given)
    except ConfigurationError as mistake:
        problems.append(f"{name}: {mistake}")
        return None


def text(duration_ms: int) -> str:
    """The shortest way to write a duration: 5400000 is "1h30m". Part of topic names: stable."""
    if duration_ms == 0:
        return "0s"
    parts: list[str] = []
    for unit, size in _UNITS.items():
        count, duration_ms = divmod(duration_ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _parse(written: str) -> float:
    compact = written.strip().lower()
    if not _WHOLE.fullmatch(compact):
        raise _mistake(written)
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(compact))


def _mistake(given: object) -> ConfigurationError:
    return ConfigurationError(
        f'{given!r} is not a duration: write one like "250ms", "5s", "1h30m" or "2d"'
        " (or seconds as a number), not negative and at most 100 years"
    )
