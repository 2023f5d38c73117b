"""Words that both engines use."""

from __future__ import annotations

from typing import Literal

Lane = Literal["main", "retry"]
"""Source topics, and delay topics."""
From = Literal["earliest", "latest"]
"""Where source topics without progress begin."""
Until = Literal["stopped", "once", "empty"]
"""stopped: for ever; once: what is there and due; empty: until nothing waits any more."""
