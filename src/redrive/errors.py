"""Everything redrive raises, in one tree.

RedriveError
├── ConfigurationError      found at start; lists all mistakes at once
├── ResourceError           what `@app.resource` makes could not be opened, or closed
├── ContextError            a handler used its context in a way its app does not allow
├── EnvelopeError           redrive-* headers that cannot be read
├── PublishError            a write did not become durable
├── HandlerTimeout          a handler did not end, or did not acknowledge, in time
├── Undecodable             a value that `decode=` could not read
├── Conflict                an id that was handled before, with another payload
├── PastError               the error of an earlier process, as far as headers tell it
├── LedgerError             the ledger's tables are not as they should be
│   └── DuplicateOutboxId   an outbound record with this id was sent before
├── LocalError              the embedded Kafka or PostgreSQL cannot run
└── Signal                  raised by handlers to say what shall become of a record (signals.py)
    ├── Retry               not now, again later
    └── Bury                never; to the dead topic

Each message says what happened, to what, and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Refusal = Literal["outage", "topic", "message", "unknown"]
"""Why a write is refused: nobody is there to take it; its topic takes nothing from this app (it is
missing, or not allowed); its topic does not take this very message (too large, without key)."""


class RedriveError(Exception):
    """The root of everything redrive raises."""


class ConfigurationError(RedriveError):
    """One or more mistakes in an app or its configuration, found before anything is consumed."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            super().__init__(f"{len(self.problems)} mistakes in the configuration:{lines}")


class ResourceError(RedriveError):
    """A resource of the app could not be opened, or raised when it was closed."""


class ContextError(RedriveError):
    """A handler used its context in a way its app does not allow."""


class EnvelopeError(RedriveError):
    """The redrive-* headers of a record cannot be read."""


class PublishError(RedriveError):
    """A write did not become durable; nothing that depends on it may be committed."""

    refused: Sequence[object] = ()
    """The very writes that were refused, where the publisher knows them; the others are durable."""
    reasons: Sequence[PublishError] = ()
    """Why: one error for each of them."""
    topic: str = ""
    kind: Refusal = "unknown"
    """What would have to change for it to be taken."""

    @property
    def outage(self) -> bool:
        """Whether no broker took it: any other write would fare the same."""
        return self.kind == "outage"


class HandlerTimeout(RedriveError):
    """A handler did not end, or did not acknowledge its record, within its time-out."""


class Undecodable(RedriveError):
    """The value of a record could not be decoded; the cause says why."""


class Conflict(RedriveError):
    """A record's id was handled before with another payload: not a duplicate, and not new."""


class PastError(RedriveError):
    """The error of an earlier process, as far as a record's headers tell it."""


class LocalError(RedriveError):
    """The embedded Kafka or PostgreSQL cannot run; the message says why and what to do."""


class LedgerError(RedriveError):
    """The ledger's tables are missing, behind, or say no."""


class DuplicateOutboxId(LedgerError):
    """An outbound record with this id was sent before, by this app: this one is a duplicate."""

    def __init__(self, outbox_id: str) -> None:
        super().__init__(
            f"an outbound record with id {outbox_id!r} was sent before: the record that sends it"
            " again is a duplicate, and nothing of it counts"
        )
        self.id = outbox_id
