"""Words that both engines use."""

from __future__ import annotations

from typing import Literal

Lane = Literal["main", "retry"]
"""Source topics, and delay topics."""
From = Literal["earliest", "latest"]
"""Where source topics without progress begin."""
Until = Literal["stopped", "once", "empty"]
"""stopped: for ever; once: what is there and due; empty: until nothing waits any more."""


def unfinished(records: int, reason: str) -> str:
    """Why a run that was to end with what is there has not done all of it."""
    subject = "1 record is not done" if records == 1 else f"{records:,} records are not done"
    return (
        f"{subject}, because what was to be written was refused; what is not done stays where it is"
        f" and runs at the next start: {reason}"
    )
