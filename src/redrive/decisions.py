"""What a policy can decide about a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REASONS: Final = (
    "exhausted",
    "expired",
    "rejected",
    "not-retryable",
    "undecodable",
    "no-id",
    "conflict",
    "refused-write",
    "no-handler",
    "broken-envelope",
    "killed-worker",
    "failed-expression",
)
"""Why records are dead: all of redrive's reasons. Headers written by others may say anything."""


@dataclass(frozen=True, slots=True)
class Again:
    """Call the handler again in place, after a wait."""

    wait: int
    counts: bool = True
    """Whether the try before it is one of those that the policy allows."""


@dataclass(frozen=True, slots=True)
class Return:
    """Give the record back to be read again, and do not run it until the wait is over."""

    wait: int
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Park:
    """Write the record to the delay topic of this delay."""

    delay: int
    due: int
    attempt: int
    not_before: int | None = None


@dataclass(frozen=True, slots=True)
class Bury:
    """Write the record to the dead topic."""

    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop the record: only if the policy says so."""

    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """The record is due: it goes to its handler."""


@dataclass(frozen=True, slots=True)
class ToOrigin:
    """The record is due: it goes back to its origin topic."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The record is not due yet."""

    until: int


Decision = Again | Return | Park | Bury | Discard
Leave = Run | ToOrigin | Park | Bury | Discard
"""How a record can leave the delay topic it is in."""
Release = Leave | Wait
