"""Calling handlers: a record or a batch goes in, a result for each comes out, no error gets past.

What sync and async functions have in common is a coroutine, which never waits for a sync one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from redrive.coroutines import run_sync
from redrive.errors import HandlerTimeout, Undecodable
from redrive.processing.calls import rules
from redrive.processing.calls.context import BatchContext, Context, RecoveryContext
from redrive.processing.calls.scope import Scope
from redrive.processing.work import BEHIND, PENDING, Ending, Lane, Result, Work

_T = TypeVar("_T")


def decode(work: Work) -> BaseException | None:
    """Decode a record before it is called: what went wrong, if something did."""
    if work.handler.decode is None:
        return None
    try:
        work.record.data = rules.decoded(work.record, work.handler)
    except BaseException as error:  # noqa: BLE001 -- whatever a decoder raises is its record's
        return rules.blameless(error)
    return None


async def call_decoded(work: Work, scope: Scope, *, is_async: bool) -> Result:
    """Call the handler, or the recovery, of a record that was decoded; sync ones never wait."""
    if is_async:
        return await _own_task(_call(work, scope, is_async=True, decoded=True))
    if work.ending is None:
        return call_plainly(work, scope, decoded=True)
    return await _call(work, scope, is_async=False)


def call_async(work: Work, scope: Scope) -> asyncio.Task[Result]:
    """Call an async handler or recovery, on the running event loop."""
    return _own_task(_call(work, scope, is_async=True))


async def call_batch(works: Sequence[Work], scope: Scope, *, is_async: bool) -> list[Result] | None:
    """Call a batch handler once; None: it failed, and did not say for which record."""
    results, good = _decode_all(works)
    found = await call_batch_decoded(good, scope, is_async=is_async) if good else []
    if isinstance(found, BaseException):
        return None if len(good) > 1 else _filled(results, [found])
    return _filled(results, found)


async def call_batch_decoded(
    works: Sequence[Work], scope: Scope, *, is_async: bool
) -> list[Result] | BaseException:
    """Call a batch handler once; an error where it has not said which record failed."""
    call = _call_batch_decoded(works, scope, is_async=is_async)
    return await (_own_task(call) if is_async else call)


# Where functions of users are called: here, and for fresh records in turns.py


def call_plainly(work: Work, scope: Scope, *, decoded: bool = False) -> Result:
    """Call a sync handler without manual acks: most records of most apps."""
    handler = work.handler
    context = Context(work, scope)
    if work.due is not None:
        scope.starts(work)
    try:
        if handler.decode is not None and not decoded:
            work.record.data = rules.decoded(work.record, handler)
        returned = handler.call(work.record, context)
        if returned is not None:
            rules.check_returned(returned, handler.call, acked=False)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return rules.raised(context, error)
    context._open = False  # noqa: SLF001 -- as close() does, without the call
    return context._sends  # noqa: SLF001 -- likewise


def call_now(work: Work, scope: Scope) -> Result:
    """Call any sync handler or recovery."""
    return run_sync(_call(work, scope, is_async=False))


async def _call(work: Work, scope: Scope, *, is_async: bool, decoded: bool = False) -> Result:
    """Call any handler or recovery; a sync one never waits."""
    if work.ending is not None:
        return await _recover(work, scope, work.ending, is_async=is_async)
    handler, record = work.handler, work.record
    context = Context(work, scope)
    manual = handler.ack == "manual"
    if manual:
        work.awaited = context
    if work.due is not None:
        scope.starts(work)
    try:
        if handler.decode is not None and not decoded:
            record.data = rules.decoded(record, handler)
        returned = handler.call(record, context)
        if is_async:
            returned = await _within_timeout(work, returned)
        rules.check_returned(returned, handler.call, acked=manual)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return rules.raised(context, error)
    return PENDING if manual else context.close()


async def _recover(work: Work, scope: Scope, ending: Ending, *, is_async: bool) -> Result:
    if decode(work) is not None:
        work.record.data = None  # a recovery is for records that cannot be handled
    context = RecoveryContext(work, scope)
    recover: Callable[..., Any] = work.handler.recover  # type: ignore[assignment]  # -- it exists: this record waits for it
    try:
        returned = recover(work.record, ending.error, context)
        if is_async:
            returned = await _within_timeout(work, returned)
        rules.check_returned(returned, recover, acked=False)
    except BaseException as failure:  # noqa: BLE001 -- a recovery that fails is tried again
        return rules.raised(context, failure)
    return context.close()


async def _call_batch_decoded(
    works: Sequence[Work], scope: Scope, *, is_async: bool
) -> list[Result] | BaseException:
    context = BatchContext(works, scope)
    records = [work.record for work in works]
    call = works[0].handler.call
    try:
        returned = call(records, context)
        if is_async:
            returned = await _within_timeout(works[0], returned)
        rules.check_returned(returned, call, acked=False)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its records'
        return rules.raised(context, error)
    return context.results()


def _decode_all(works: Sequence[Work]) -> tuple[list[Result], list[Work]]:
    """Those that cannot be decoded have their result, the others are for the call."""
    results: list[Result] = []
    good: list[Work] = []
    failed: set[Lane | None] = set()
    for work in works:
        if work.lane in failed:
            results.append(BEHIND)
        elif (error := decode(work)) is None:
            results.append(PENDING)
            good.append(work)
        else:
            results.append(error)
            if not isinstance(error, Undecodable):  # for one that is, nobody waits
                rules.note_failed(work, error, failed)
    return results, good


def _filled(results: list[Result], found: list[Result]) -> list[Result]:
    """The results of the call, put where a decoding error did not already stand."""
    rest = iter(found)
    return [next(rest) if result is PENDING else result for result in results]


def _own_task(call: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """A task for one call: if it is cancelled later, nobody else is.

    A handler may arrange that, with a timer of its own that it does not stop. On a task that many
    records share, it would hit one of the others, or the commit of all of them.
    """
    return asyncio.get_running_loop().create_task(call)


async def _within_timeout(work: Work, call: Awaitable[object]) -> object:
    """What the function of a record returned; a recovery has the time that its handler has."""
    timeout = work.handler.timeout
    if timeout is None:
        return await call
    limit = asyncio.timeout(timeout / 1000)
    try:
        async with limit:
            return await call
    except TimeoutError as error:
        if not limit.expired():
            raise  # the handler's own: a call of its own took too long
        what = "handler" if work.ending is None else "recovery"
        raise HandlerTimeout(
            f"the {what} of {work.handler.topic!r} did not end within {timeout} ms"
            f" for {work.record.place}"
        ) from error
