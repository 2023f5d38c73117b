"""What handlers raise to decide what happens to their record."""

from __future__ import annotations

from redrive.durations import Duration, milliseconds
from redrive.errors import RedriveError


class Signal(RedriveError):
    """Raised by a handler to decide what happens to its record."""


class Retry(Signal):
    """The record cannot be handled now: try it again later.

    Without `after` the policy's next delay applies. With it (`"37s"`) the record waits that long:
    never shorter, and at most the policy's smallest delay longer. Either way it is one attempt.
    """

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else milliseconds(after)


class Bury(Signal):
    """The record can never be handled: bury it at once, whatever the policy says."""
