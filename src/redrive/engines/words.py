"""Words that both engines use."""

from __future__ import annotations

from typing import Literal

from redrive.numbers import counted

LaneName = Literal["main", "retry"]
"""Source topics, and delay topics."""
From = Literal["earliest", "latest"]
"""Where to start reading source topics without progress."""
Until = Literal["stopped", "once", "empty"]
"""stopped: forever; once: what is there and due; empty: until nothing is waiting."""


def unfinished(records: int, reason: str) -> str:
    """Why a run with --once or --until-empty has left records undone."""
    subject = f"{counted(records, 'record is', 'records are')} not done"
    return (
        f"{subject}, because writes were refused; what is not done stays where it is and runs at"
        f" the next start: {reason}"
    )
