"""What a relay has done, and how it is."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class RelayFigures:
    """Written by the relay's thread, read by others."""

    published: Counter[str] = field(default_factory=Counter)
    """Rows, by topic."""
    refused: Counter[str] = field(default_factory=Counter)
    """How often a row was refused, by topic."""
    errors: Counter[str] = field(default_factory=Counter)
    """How often the database or Kafka was unavailable."""
    batches: int = 0
    abandoned: int = 0
    """Batches that were rolled back: their rows are published again, with the same ids."""
    shards: int = 0
    trouble: str = ""
    """What is in the way; empty when nothing is."""
    alive: float = field(default_factory=time.monotonic)
    """When the relay was last seen at work."""
