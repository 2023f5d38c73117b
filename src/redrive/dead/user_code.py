"""How code of the app is called while letters are looked at: at once, or by whoever bounds it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from redrive.errors import RedriveError

Calls = Callable[[Callable[[], Any], Hashable], Any]
"""Calls a function and returns what it does; calls with the same key have the same result."""


class NotAnsweredError(RedriveError):
    """Code of the app took too long, and nobody waits for it any more."""


def at_once(run: Callable[[], Any], _key: Hashable) -> Any:
    """Here and now, however long it takes: whoever runs a command can end it."""
    return run()
