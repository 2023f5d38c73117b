"""Pace: how fast letters are replayed, and where to stop and look. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from redrive.errors import ConfigurationError

_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/(s|m|h))?")
_SECONDS: Final = {None: 1, "s": 1, "m": 60, "h": 3600}


def rate_of(written: str | None) -> float | None:
    """Letters per second, of `200/s`, `30/m` or `200`."""
    if written is None:
        return None
    found = _RATE.fullmatch(written)
    if found is None or float(found[1]) <= 0:
        raise ConfigurationError(f"--rate is {written!r}: write letters per time, such as 200/s")
    return float(found[1]) / _SECONDS[found[2]]


def ramp_of(written: str | None) -> tuple[int, ...]:
    """The steps of `1,10,100`: this many, then this many more, and after the last one the rest."""
    if written is None:
        return ()
    try:
        steps = tuple(int(each) for each in written.split(","))
    except ValueError:
        steps = ()
    if not steps or min(steps) < 1:
        raise ConfigurationError(f"--ramp is {written!r}: write numbers of letters, such as 1,10")
    return steps


def share_of(written: str | None) -> float | None:
    """The share of `5%`."""
    if written is None:
        return None
    number = written.removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ConfigurationError(f"--stop-above is {written!r}: write a share, such as 5%")
    return share


@dataclass
class Pace:
    """Counts what was sent, and says how many may follow."""

    rate: float | None = None
    ramp: Sequence[int] = ()
    sent: int = 0
    at_once: int = 500

    def __post_init__(self) -> None:
        self._steps = [*accumulate(self.ramp)]
        self._next: float | None = None

    @property
    def looks(self) -> bool:
        """Whether a step has just ended: whatever was sent has to be handled before the next."""
        return self.sent in self._steps

    def room(self) -> int:
        """How many letters the next transaction may have: no more than its step is long."""
        step = next((each for each in self._steps if each > self.sent), None)
        most = self.at_once if self.rate is None else max(1, min(self.at_once, int(self.rate)))
        return most if step is None else min(most, step - self.sent)

    def took(self, letters: int, began: float) -> None:
        """So many were sent, by a transaction that began then."""
        self.sent += letters
        if self.rate is not None:
            start = began if self._next is None else max(self._next, began)
            self._next = start + letters / self.rate

    def wait(self, now: float) -> float:
        """Seconds until the next transaction may begin."""
        return 0.0 if self._next is None else max(0.0, self._next - now)
