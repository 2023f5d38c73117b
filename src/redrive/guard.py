"""Guard: what counts as an outage of something that handlers depend on, and what is done about it.

Only what was chosen: who watches, and decides, is `breaker.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from redrive import signals
from redrive.backoff import Backoff, set_fields
from redrive.durations import Duration, optional_milliseconds
from redrive.errors import ConfigurationError, HandlerTimeout
from redrive.policy import causes, error_types, signal_in
from redrive.tuning import GUARD_PROBE, GUARD_PROBE_LONGEST

State = Literal["closed", "suspect", "open", "ramp"]
_DEFAULT: Final = (ConnectionError, TimeoutError, HandlerTimeout)


@dataclass(frozen=True, init=False)
class Guard:
    """Stops calling a handler while what it depends on is away, at no cost to its records.

    An outage is seen by `failures` failures of at least `keys` different keys, with one
    fingerprint, within `window`, while next to nothing succeeds; or `raise Outage(...)` says so.
    Only errors of the classes in `outage_on`, or caused by one, count.
    """

    outage_on: tuple[type[BaseException], ...]
    failures: int
    keys: int
    window: int
    max_open: int | None
    """Milliseconds after which it is logged as an error that the outage lasts."""
    probes: Backoff

    def __init__(
        self,
        *,
        outage_on: Sequence[type[BaseException]] = _DEFAULT,
        failures: int = 20,
        keys: int = 10,
        window: Duration = "10s",
        max_open: Duration | None = None,
    ) -> None:
        problems: list[str] = []
        for name, number in (("failures", failures), ("keys", keys)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                problems.append(f"{name} is {number!r}; it must be at least 1")
        if not problems and keys > failures:
            problems.append(f"keys is {keys}, more than failures ({failures})")
        lasts = optional_milliseconds("window", window, problems)
        if lasts == 0:
            problems.append("window is 0: nothing could be seen in it")
        set_fields(
            self,
            outage_on=error_types("outage_on", outage_on, problems),
            failures=failures,
            keys=keys,
            window=lasts or 0,
            max_open=optional_milliseconds("max_open", max_open, problems),
            probes=Backoff(GUARD_PROBE, factor=2, cap=GUARD_PROBE_LONGEST, jitter=0),
        )
        if problems:
            raise ConfigurationError([f"Guard: {problem}" for problem in problems])

    def sees_outage(self, error: BaseException) -> bool:
        """Whether an error can be an outage: not one by which a handler speaks of its record."""
        said = signal_in(error)
        if said is not None:
            return isinstance(said, signals.Outage)
        return any(isinstance(cause, self.outage_on) for cause in causes(error))

    def said(self, error: BaseException) -> signals.Outage | None:
        """What the handler itself has said about an outage."""
        signal = signal_in(error)
        return signal if isinstance(signal, signals.Outage) else None
