"""The call of a handler that is tried: sync or async, of records or batches, with a limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.coroutines import run_sync
from redrive.dead.acknowledgement import Acknowledgement
from redrive.dead.patience import did_not_end
from redrive.dead.rolled_back import RolledBack
from redrive.errors import HandlerTimeout
from redrive.processing.calls import invoke

if TYPE_CHECKING:
    from redrive.processing.calls.scope import Scope
    from redrive.processing.work import Result, Work


def call(work: Work, scope: Scope, runner: asyncio.Runner, seconds: float) -> Result:
    """What came of a record; HandlerTimeout, if an async handler has not ended in that time.

    Sync handlers are not ended: that is for whoever waits for the thread.
    """
    word = Acknowledgement(work)
    scope.acknowledge = word.take
    units = scope.units
    if work.handler.is_async:
        result = runner.run(_called_async(work, scope, word, seconds))
    elif isinstance(units, RolledBack):
        result = units.around(lambda: _called(work, scope))
    else:
        result = word.after(_called(work, scope))
    if isinstance(result, HandlerTimeout):  # by its own time-out
        raise did_not_end(seconds) from result
    return result


def _called(work: Work, scope: Scope) -> Result:
    if work.handler.batch is None:
        return invoke.call_now(work, scope)
    return _only(run_sync(invoke.call_batch([work], scope, is_async=False)))


async def _called_async(work: Work, scope: Scope, word: Acknowledgement, seconds: float) -> Result:
    async def in_time() -> Result:
        try:
            async with asyncio.timeout(seconds) as limit:
                result = await returned()
        except TimeoutError:
            return did_not_end(seconds)
        return did_not_end(seconds) if limit.expired() else result

    async def returned() -> Result:
        if work.handler.batch is None:
            return await invoke.call_async(work, scope)
        return _only(await invoke.call_batch([work], scope, is_async=True))

    units = scope.units
    if isinstance(units, RolledBack):  # it has no manual acknowledgements
        return await units.around_async(in_time)
    return await word.after_async(await in_time())


def _only(results: list[Result] | None) -> Result:
    assert results is not None, "one record: it is known which one failed"  # noqa: S101 -- by call_batch
    return results[0]
