"""Calling handlers within a unit of work: each call can be undone without the others.

Written once for sync and async functions: what is sync never waits, and so needs no event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Protocol

from redrive.errors import ContextError
from redrive.processing.calls import invoke, rules
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.work import BEHIND, DUPLICATE, Lane, Result, Work
from redrive.record import Write
from redrive.tuning import GUARD_BATCH


class Savepoint(Protocol):
    """What makes one call undoable: a savepoint, where the work is done in a database."""

    async def begin(self) -> None:
        """A call begins."""
        ...

    async def keep(self, sends: Sequence[Write]) -> bool:
        """Keep what the call did; False: one of these was sent before, and it is undone.

        ContextError where it cannot count, because of what the handler did; then it is undone too.
        """
        ...

    async def undo(self, error: BaseException) -> None:
        """Undo what the call did; raises where that was no fault of the call."""
        ...


async def call(work: Work, scope: Scope, guard: Savepoint, lot: Lot) -> Result:
    """Call the function for one record of a lot, which was decoded."""
    await guard.begin()
    with _watched(lot, [work]):
        result = await invoke.call_decoded(work, scope, is_async=lot.is_async)
    if isinstance(result, BaseException):
        await guard.undo(result)
        return result
    return await _kept(guard, result, result if isinstance(result, list) else ())


async def call_batch(
    works: Sequence[Work], scope: Scope, guard: Savepoint, lot: Lot
) -> list[Result]:
    """Call a batch handler; one by one, where it did not say which of its records failed."""
    await guard.begin()
    with _watched(lot, works):
        results = await invoke.call_batch_decoded(works, scope, is_async=lot.is_async)
    if isinstance(results, BaseException):
        await guard.undo(results)
        failed: Result = results
    else:
        sends = [write for each in results if isinstance(each, list) for write in each]
        failed = await _kept(guard, None, sends)
        if failed is None:
            return results
    if len(works) == 1:
        return [failed]
    alone: list[Result] = []
    in_a_row = 0
    stopped: set[Lane | None] = set()
    for work in works:
        called = work.lane not in stopped and in_a_row < GUARD_BATCH
        alone += await call_batch([work], scope, guard, lot) if called else [BEHIND]
        rules.note_failed(work, alone[-1], stopped)
        if called:
            in_a_row = in_a_row + 1 if rules.sees_outage(work, alone[-1]) else 0
    return alone


@contextmanager
def _watched(lot: Lot, works: Sequence[Work]) -> Iterator[None]:
    """Let it be noticed if a function takes long, or hangs."""
    lot.thread = None if lot.is_async else get_ident()
    lot.calls_with(works)
    try:
        yield
    finally:
        lot.current = None  # from here on it is the database that takes long
        lot.returned()


async def _kept(guard: Savepoint, result: Result, sends: Sequence[Write]) -> Result:
    try:
        return result if await guard.keep(sends) else DUPLICATE
    except ContextError as mistake:
        return mistake
