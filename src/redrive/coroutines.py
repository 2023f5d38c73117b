"""Coroutines that are written once for sync and async functions."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, such as those of sync functions, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # -- StopIteration is not generic
    coroutine.close()
    raise AssertionError("a coroutine of a sync function waited for an event loop")
