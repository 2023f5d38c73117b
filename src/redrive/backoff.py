"""What is tried before a record is parked: in place, or by giving it back; and how long to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from redrive.durations import Duration, milliseconds
from redrive.errors import ConfigurationError

_MAX_FACTOR: Final = 1000


@dataclass(frozen=True, init=False)
class Backoff:
    """How long to wait between tries: `initial`, then `factor` times longer each, up to `cap`.

    `jitter` shortens each wait by up to that share, so that records that failed together do not
    come back together. It is derived from the record's place: the same record waits the same.
    """

    initial: int
    factor: float
    cap: int
    jitter: float

    def __init__(
        self, initial: Duration, *, factor: float = 2, cap: Duration = "1m", jitter: float = 0.1
    ) -> None:
        problems: list[str] = []
        if not 1 <= factor <= _MAX_FACTOR:
            problems.append(f"factor is {factor}; it can be 1 to {_MAX_FACTOR}")
        if not 0 <= jitter <= 1:
            problems.append(f"jitter is {jitter}; it can be 0 to 1")
        shortest = optional_duration("initial", initial, problems) or 0
        longest = optional_duration("cap", cap, problems) or 0
        if problems:
            raise ConfigurationError([f"Backoff: {problem}" for problem in problems])
        set_fields(self, initial=shortest, factor=factor, cap=max(longest, shortest), jitter=jitter)

    def wait(self, tries: int, seed: str = "") -> int:
        """The wait after that many tries, in milliseconds."""
        # The exponent is bounded because a record may be tried in place for ever.
        full = min(self.initial * self.factor ** min(tries - 1, 64), self.cap)
        share = crc32(f"{seed}/{tries}".encode()) / 0xFFFFFFFF
        return round(full * (1 - self.jitter * share))


@dataclass(frozen=True, init=False)
class InPlace:
    """Blocking retry: call the handler again, in place. `attempts=None` is for ever."""

    attempts: int | None
    backoff: Backoff

    def __init__(self, attempts: int | None, backoff: Backoff | None = None) -> None:
        set_fields(
            self, attempts=at_least_one("InPlace", attempts), backoff=backoff or Backoff("1s")
        )
        if self.attempts is None and self.backoff.initial == 0:
            raise ConfigurationError(
                "InPlace: for ever without a wait would be hot; give Backoff more than 0"
            )


@dataclass(frozen=True, init=False)
class GiveBack:
    """Stateful retry: give the record back and read it again, so that polling never stops.

    Attempts are counted by topic, partition and offset within the process.
    """

    attempts: int
    backoff: Backoff

    def __init__(self, attempts: int, backoff: Backoff | None = None) -> None:
        set_fields(
            self, attempts=at_least_one("GiveBack", attempts), backoff=backoff or Backoff("1s")
        )


def set_fields(instance: object, **values: object) -> None:
    """Set the fields of a frozen instance, in its own constructor."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def at_least_one(where: str, attempts: int | None) -> int | None:
    """The number of attempts, if it can be one."""
    if attempts is not None and attempts < 1:
        raise ConfigurationError(
            f"{where}: attempts is {attempts}; it counts all calls, the first included: at least 1"
        )
    return attempts


def optional_duration(name: str, given: Duration | None, problems: list[str]) -> int | None:
    """The duration in milliseconds; a mistake is added to the others."""
    if given is None:
        return None
    try:
        return milliseconds(given)
    except ConfigurationError as mistake:
        problems.append(f"{name}: {mistake}")
        return None
