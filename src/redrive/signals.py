"""What handlers raise to decide what happens to their record."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import time
from typing import Final, Self

from redrive.durations import Duration, milliseconds
from redrive.errors import RedriveError

_LONGEST: Final = 365 * 86_400.0
"""Seconds that a header can ask for: more is a mistake of whoever has sent it."""


class Signal(RedriveError):
    """Raised by a handler to decide what happens to its record."""


class Retry(Signal):
    """The record cannot be handled now: try it again later.

    Without `after` the policy's next delay applies. With it (`"37s"`) the record waits that long:
    never shorter, and at most the policy's smallest delay longer. Either way it is one attempt;
    with `counts=False` it is none, until the policy's `max_duration` is over.
    """

    def __init__(
        self, reason: str = "", *, after: Duration | None = None, counts: bool = True
    ) -> None:
        super().__init__(reason)
        self.after = None if after is None else milliseconds(after)
        self.counts = counts

    @classmethod
    def after_header(
        cls, value: str | None, reason: str = "rate limited", *, now: float | None = None
    ) -> Self:
        """A rate limit, as an HTTP `Retry-After` header tells it: seconds, or a date.

        It counts no attempt. A header that is missing or cannot be read leaves the wait to the
        policy. `now` is the time in seconds since 1970.
        """
        seconds = _seconds(value, time() if now is None else now)
        return cls(reason, after=seconds, counts=False)


class Bury(Signal):
    """The record can never be handled: bury it at once, whatever the policy says."""


class Outage(Signal):
    """Something that the handler depends on is away: not this record's fault, nor any other's.

    With a guard no further record is tried until a probe succeeds, the first one after
    `retry_after`. Without a guard it is an error like any other.
    """

    def __init__(self, reason: str = "", *, retry_after: Duration | None = None) -> None:
        super().__init__(reason)
        self.retry_after = None if retry_after is None else milliseconds(retry_after)


def _seconds(header: str | None, now: float) -> float | None:
    written = (header or "").strip()
    if written.isascii() and written.isdigit():
        return min(float(written), _LONGEST)
    try:
        at = parsedate_to_datetime(written)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        left = (at - datetime.fromtimestamp(now, UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None  # it may name an impossible year, or a zone beyond all
    return min(max(0.0, left), _LONGEST)
