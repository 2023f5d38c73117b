"""What is tried before a record is parked, in place or by giving it back; and how long to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Final, TypeVar
from zlib import crc32

from redrive.durations import Duration, milliseconds, optional_milliseconds
from redrive.errors import ConfigurationError
from redrive.signals import Bury, Retry

_T = TypeVar("_T")
_MAX_FACTOR: Final = 1000


@dataclass(frozen=True, init=False)
class Backoff:
    """How long to wait between tries: `initial`, then `factor` times longer each time, up to `cap`.

    `jitter` shortens each wait by up to that fraction, so that records that failed together do not
    come back together. It is derived from the record's place: one record always waits equally long.
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
        shortest = optional_milliseconds("initial", initial, problems) or 0
        longest = optional_milliseconds("cap", cap, problems) or 0
        if problems:
            raise ConfigurationError([f"Backoff: {problem}" for problem in problems])
        set_fields(self, initial=shortest, factor=factor, cap=max(longest, shortest), jitter=jitter)

    def wait(self, tries: int, seed: str = "") -> int:
        """The wait after that many tries, in milliseconds."""
        # The exponent is bounded because a record may be retried in place forever.
        full = min(self.initial * self.factor ** min(tries - 1, 64), self.cap)
        share = crc32(f"{seed}/{tries}".encode()) / 0xFFFFFFFF
        return round(full * (1 - self.jitter * share))


@dataclass(frozen=True, init=False)
class InPlace:
    """Blocking retry: call the handler again, in place. `attempts=None` means forever."""

    attempts: int | None
    backoff: Backoff

    def __init__(self, attempts: int | None, backoff: Backoff | None = None) -> None:
        set_fields(
            self,
            attempts=at_least_one("InPlace", attempts),
            backoff=_given_backoff("InPlace", backoff),
        )
        if self.attempts is None and self.backoff.initial == 0:
            raise ConfigurationError(
                "InPlace: retrying forever without a wait is a busy loop; give Backoff more than 0"
            )

    def call(
        self,
        function: Callable[..., _T],
        /,
        *arguments: object,
        at_most: Duration | None = None,
        stop: Event | None = None,
    ) -> _T:
        """Call a function until it succeeds: for a batch handler, with one of its records.

        Its last error is raised when the attempts are used up, when the next call would come later
        than `at_most` after the first, or as soon as `stop` is set; a `Bury` is raised at once.
        """
        trying = _Trying(self, at_most, stop)
        while True:
            try:
                return function(*arguments)
            except Exception as error:
                wait = trying.wait_after(error)
                if wait is None or (stop or Event()).wait(wait):
                    raise

    async def call_async(
        self,
        function: Callable[..., Awaitable[_T]],
        /,
        *arguments: object,
        at_most: Duration | None = None,
    ) -> _T:
        """The same for an async function; it stops early when its task is cancelled."""
        trying = _Trying(self, at_most, None)
        while True:
            try:
                return await function(*arguments)
            except Exception as error:
                wait = trying.wait_after(error)
                if wait is None:
                    raise
                await asyncio.sleep(wait)


class _Trying:
    """One call that is repeated until it succeeds."""

    def __init__(self, how: InPlace, at_most: Duration | None, stop: Event | None) -> None:
        if how.attempts is None and at_most is None and stop is None:
            raise ConfigurationError(
                "InPlace(attempts=None).call(): it would block its caller forever; give at_most=,"
                " stop= or a number of attempts"
            )
        self._how = how
        self._end = None if at_most is None else monotonic() + milliseconds(at_most) / 1000
        self._tries = 0

    def wait_after(self, error: Exception) -> float | None:
        """Seconds to wait before the next call; None: there will be none."""
        self._tries += 1
        attempts = self._how.attempts
        if isinstance(error, Bury) or (attempts is not None and self._tries >= attempts):
            return None
        asked = (error.after or 0) if isinstance(error, Retry) else 0
        wait = max(asked, self._how.backoff.wait(self._tries)) / 1000
        if self._end is not None and monotonic() + wait > self._end:
            return None
        return wait


@dataclass(frozen=True, init=False)
class GiveBack:
    """Stateful retry: give the record back and read it again, so that polling never stops.

    Attempts are counted by topic, partition and offset within the process.
    """

    attempts: int
    backoff: Backoff

    def __init__(self, attempts: int, backoff: Backoff | None = None) -> None:
        set_fields(
            self,
            attempts=at_least_one("GiveBack", attempts),
            backoff=_given_backoff("GiveBack", backoff),
        )


def set_fields(instance: object, **values: object) -> None:
    """Set the fields of a frozen instance, in its own constructor."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def _given_backoff(where: str, given: Backoff | None) -> Backoff:
    if given is not None and not isinstance(given, Backoff):
        raise ConfigurationError(f"{where}: backoff is {given!r}; write Backoff({given!r})")
    return given or Backoff("1s")


def at_least_one(where: str, attempts: int | None) -> int | None:
    """The number of attempts, if it is valid."""
    if attempts is not None and attempts < 1:
        raise ConfigurationError(
            f"{where}: attempts is {attempts}; it counts all calls including the first, so it must"
            " be at least 1"
        )
    return attempts
