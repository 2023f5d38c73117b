"""Calling handlers: a lot goes in, a result per record comes out, and no error gets past.

The same steps twice, sync and async, because a function is one or the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redrive.errors import HandlerTimeout
from redrive.processing import calls
from redrive.processing.at_once import Stretch
from redrive.processing.context import BatchContext, Context, RecoveryContext
from redrive.processing.pool import Share
from redrive.processing.scope import Scope, UnderWay
from redrive.processing.work import PENDING, Lot, Result, Work
from redrive.record import Record

if TYPE_CHECKING:
    from redrive.processing.dispatcher import Dispatcher

STRETCH: Final = 0.005
"""Seconds after which a stretch ends: its results are told only then."""
TURN: Final = 0.05
"""Seconds after which a thread looks for other work than that of its pool."""
REPORT_EVERY: Final = 0.001
"""Seconds. Results of a long lot are told on the way, so that a crash repeats little: the record
after them may take long."""

Tell = Callable[[list[Result]], None]


def teller(dispatcher: Dispatcher, lot: Lot) -> Tell:
    """How results of a lot's first part are told."""
    return lambda results: dispatcher.tell(lot, results)


def run(lot: Lot, scope: Scope, tell: Tell, until: float = inf) -> list[Result]:
    """Run a lot whose function is sync; gives the results that were not told on the way.

    It stops at the first record that fails, because those behind it may have to wait for it, and
    begins with no record after `until` on the monotonic clock.
    """
    lot.thread = get_ident()
    if isinstance(lot, Stretch):
        lot.run(min(until, monotonic() + STRETCH))
        return []
    if isinstance(lot, Share):
        lot.run(min(until, monotonic() + TURN))
        return []
    if lot.in_one_call:
        lot.begins(lot.works[0].record)
        if lot.handler.timeout is not None:
            scope.under_way[get_ident()] = UnderWay(lot, lot.works[0], monotonic())
        return _call_batch(lot.works, scope)
    return _call_each(lot, scope, tell, until)


def _call_each(lot: Lot, scope: Scope, tell: Tell, until: float) -> list[Result]:
    results: list[Result] = []
    call = _recover if lot.recovering else _call
    if call is _call and lot.handler.decode is None and lot.handler.ack == "auto":
        call = _call_plainly
    took: list[float] = []
    timed = lot.handler.timeout is not None
    told = began = start = now = monotonic()
    for work in lot.works:
        if lot.cancelled:
            break
        if timed:
            results = _tell_before(results, tell)
            scope.under_way[get_ident()] = UnderWay(lot, work, monotonic())
        lot.current, lot.since = work.record, began
        result = call(work, scope)
        results.append(result)
        now = monotonic()
        took.append(now - began)
        began = now
        if isinstance(result, BaseException) or now >= until:
            break
        if now - told > REPORT_EVERY:
            tell(results)
            results = []
            told = now
    lot.seconds = now - start
    if scope.times is not None:
        scope.times.add_all(took)
    return results


def _tell_before(results: list[Result], tell: Tell) -> list[Result]:
    """Tell what is known before a call that may never end: only its record is lost with it."""
    if results:
        tell(results)
    return []


async def run_async(lot: Lot, scope: Scope, tell: Tell) -> list[Result]:
    """Run a lot whose function is async, on the running event loop."""
    if lot.in_one_call:
        lot.begins(lot.works[0].record)
        return await _call_batch_async(lot.works, scope)
    results: list[Result] = []
    call = _recover_async if lot.recovering else _call_async
    told = monotonic()
    for work in lot.works:
        if lot.cancelled:
            break
        lot.begins(work.record)
        result = await call(work, scope)
        results.append(result)
        if isinstance(result, BaseException):
            break
        if monotonic() - told > REPORT_EVERY:
            tell(results)
            results = []
            told = monotonic()
    return results


def decode(work: Work) -> BaseException | None:
    """Decode a record before it is called: what went wrong, if something did."""
    if work.handler.decode is None:
        return None
    try:
        work.record.data = calls.decoded(work)
    except BaseException as error:  # noqa: BLE001 -- whatever a decoder raises is its record's
        return calls.blameless(error)
    return None


async def call_decoded(work: Work, scope: Scope, *, is_async: bool) -> Result:
    """Call the handler, or the recovery, of a record that was decoded; sync ones never wait."""
    if work.ending is not None:
        return await _recover_async(work, scope) if is_async else _recover(work, scope)
    if is_async:
        return await _call_async(work, scope, decoded=True)
    return _call_plainly(work, scope)


async def call_batch_decoded(
    works: Sequence[Work], scope: Scope, *, is_async: bool
) -> list[Result] | BaseException:
    """Call a batch handler once; an error where it has not said which record failed."""
    context = BatchContext(works, scope)
    records = [work.record for work in works]
    handler = works[0].handler
    try:
        if is_async:
            returned = await _within_timeout(works[0], handler.call(records, context))
        else:
            returned = handler.call(records, context)
        if returned is not None:
            calls.check_returned(returned, handler.call, acked=False)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its records'
        return calls.raised(context, error)
    return context.results()


def _call(work: Work, scope: Scope) -> Result:
    handler = work.handler
    record = work.record
    context = Context(work, scope)
    if handler.ack == "manual":
        work.awaited = context
    if work.due is not None:
        scope.starts(work)
    try:
        if handler.decode is not None:
            record.data = calls.decoded(work)
        returned = handler.call(record, context)
        if returned is not None:
            calls.check_returned(returned, handler.call, acked=handler.ack == "manual")
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return calls.raised(context, error)
    return PENDING if handler.ack == "manual" else context.close()


def _call_plainly(work: Work, scope: Scope) -> Result:
    """The same for a handler without decoder and manual acks: most records of most apps."""
    context = Context(work, scope)
    if work.due is not None:
        scope.starts(work)
    try:
        returned = work.handler.call(work.record, context)
        if returned is not None:
            calls.check_returned(returned, work.handler.call, acked=False)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return calls.raised(context, error)
    context._open = False  # noqa: SLF001 -- as close() does, without the call
    return context._sends  # noqa: SLF001 -- likewise


async def _call_async(work: Work, scope: Scope, *, decoded: bool = False) -> Result:
    handler = work.handler
    record = work.record
    context = Context(work, scope)
    if handler.ack == "manual":
        work.awaited = context
    if work.due is not None:
        scope.starts(work)
    try:
        if handler.decode is not None and not decoded:
            record.data = calls.decoded(work)
        returned = await _within_timeout(work, handler.call(record, context))
        if returned is not None:
            calls.check_returned(returned, handler.call, acked=handler.ack == "manual")
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return calls.raised(context, error)
    return PENDING if handler.ack == "manual" else context.close()


def _recover(work: Work, scope: Scope) -> Result:
    context, error = _recovery(work, scope)
    recover: Callable[..., Any] = work.handler.recover  # type: ignore[assignment]  # -- it exists: this lot is of recoveries
    try:
        calls.check_returned(recover(work.record, error, context), recover, acked=False)
    except BaseException as failure:  # noqa: BLE001 -- a recovery that fails is tried again
        return calls.raised(context, failure)
    return context.close()


async def _recover_async(work: Work, scope: Scope) -> Result:
    context, error = _recovery(work, scope)
    recover: Callable[..., Any] = work.handler.recover  # type: ignore[assignment]  # -- it exists: this lot is of recoveries
    try:
        returned = await _within_timeout(work, recover(work.record, error, context))
        calls.check_returned(returned, recover, acked=False)
    except BaseException as failure:  # noqa: BLE001 -- a recovery that fails is tried again
        return calls.raised(context, failure)
    return context.close()


def _call_batch(works: Sequence[Work], scope: Scope) -> list[Result]:
    results, good, records, context = _batch(works, scope)
    if good:
        try:
            call = good[0].handler.call
            calls.check_returned(call(records, context), call, acked=False)
        except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its records'
            if len(good) == 1:
                return _filled(results, [calls.raised(context, error)])
            # It does not say which of them failed: one by one, only the failing ones fail.
            context.close()
            return _filled(results, [_call_alone(work, scope) for work in good])
    return _filled(results, context.results())


def _call_alone(work: Work, scope: Scope) -> Result:
    """One record of a batch, with all the time that a call has."""
    call = scope.under_way.get(get_ident())
    if call is not None and work.handler.timeout is not None:
        scope.under_way[get_ident()] = call._replace(work=work, since=monotonic())
    return _call_batch([work], scope)[0]


async def _call_batch_async(works: Sequence[Work], scope: Scope) -> list[Result]:
    results, good, records, context = _batch(works, scope)
    if good:
        try:
            call = good[0].handler.call
            returned = await _within_timeout(good[0], call(records, context))
            calls.check_returned(returned, call, acked=False)
        except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its records'
            if len(good) == 1:
                return _filled(results, [calls.raised(context, error)])
            context.close()
            return _filled(results, [(await _call_batch_async([work], scope))[0] for work in good])
    return _filled(results, context.results())


_Batch = tuple[list[Result], list[Work], list[Record], BatchContext]


def _batch(works: Sequence[Work], scope: Scope) -> _Batch:
    """Decode all; those that cannot be decoded have their result, the others are the call's."""
    results: list[Result] = []
    good: list[Work] = []
    for work in works:
        try:
            work.record.data = calls.decoded(work)
        except BaseException as error:  # noqa: BLE001 -- whatever a decoder raises is its record's
            results.append(calls.blameless(error))
        else:
            results.append(PENDING)
            good.append(work)
    return results, good, [work.record for work in good], BatchContext(good, scope)


def _filled(results: list[Result], found: list[Result]) -> list[Result]:
    """The results of the call, put where a decoding error did not already stand."""
    rest = iter(found)
    return [next(rest) if result is PENDING else result for result in results]


def _recovery(work: Work, scope: Scope) -> tuple[Context, BaseException | None]:
    try:
        work.record.data = calls.decoded(work)
    except BaseException as error:  # noqa: BLE001 -- a recovery is for records that cannot be handled
        calls.blameless(error)
        work.record.data = None
    return RecoveryContext(work, scope), work.ending.error if work.ending else None


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
