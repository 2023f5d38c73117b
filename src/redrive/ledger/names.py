"""Names and numbers that all users of one ledger must agree on."""

from __future__ import annotations

import hashlib
from typing import Final

DEFAULT_SCHEMA: Final = "redrive"

SHARDS: Final = 32
"""Into how many shards the relays' work is divided. Stored in rows: it cannot be changed."""

BUCKETS: Final = 1024
"""How many locks all aggregates share: PostgreSQL's lock table is small, a lot may be large."""


def lock_class(purpose: str, schema: str, app: str = "") -> int:
    """The first of the two numbers of an advisory lock: signed, 32 bits."""
    text = f"redrive/{purpose}/{schema}/{app}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big", signed=True)


def channel(schema: str) -> str:
    """The channel on which writers notify relays of new work."""
    return f"{schema}_outbox"
