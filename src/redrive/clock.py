"""The machine's clock."""

from __future__ import annotations

import time


class WallClock:
    """Milliseconds of the machine's clock."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000
