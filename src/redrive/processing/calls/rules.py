"""What all calls of handlers have in common, before and after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from types import CoroutineType
from typing import Any

from redrive.envelope import type_and_text
from redrive.errors import Undecodable
from redrive.handler import Handler, name_of
from redrive.policy import causes
from redrive.processing.calls.context import BatchContext, Context
from redrive.processing.work import Lane, Result, Work
from redrive.record import Record
from redrive.signals import Signal
from redrive.threads import raise_ctrl_c


def decoded(record: Record, handler: Handler) -> object:
    """The decoded value. A null value has nothing to decode: it is a tombstone, not a mistake."""
    value, decode = record.value, handler.decode
    if value is None or decode is None:
        return value
    try:
        data = decode(value)
        if type(data) is CoroutineType:
            _refuse_coroutine(data, decode)
    except BaseException as error:
        blameless(error)
        retry_on = handler.retry.retry_on or ()
        if isinstance(error, Signal) or any(isinstance(cause, retry_on) for cause in causes(error)):
            raise  # a schema registry that is down is no reason to bury anybody
        raise Undecodable(
            f"the value of {record.place} cannot be decoded: {type_and_text(error)}"
        ) from error
    return data


def _refuse_coroutine(data: CoroutineType[Any, Any, Any], decode: Callable[..., Any]) -> None:
    data.close()
    raise TypeError(f"{name_of(decode)} returned a coroutine: decode= must not be async")


def check_returned(returned: object, function: Callable[..., object], *, acked: bool) -> None:
    """Refuse what stands for work that has not been done: nobody would do it, or hear how it ended.

    With `acked` the record is done when its acknowledgement comes: its work may go on meanwhile.
    """
    name = name_of(function)
    if isinstance(returned, Future | asyncio.Future):
        if not acked:
            raise TypeError(
                f"{name} returned a {type(returned).__name__}, whose work may still fail: wait for"
                ' its result, or acknowledge the record later (ack="manual")'
            )
    elif isinstance(returned, Awaitable):
        if isinstance(returned, Coroutine):
            returned.close()
        raise TypeError(
            f"{name} returned an awaitable that is never awaited: make the function async def,"
            " and await it there"
        )
    elif isinstance(returned, Generator | AsyncGenerator):
        raise TypeError(
            f"{name} returned a generator, whose body has not run and never would: a handler must"
            " not yield; ctx.send sends messages"
        )


def note_failed(work: Work, result: Result, lanes: set[Lane | None]) -> None:
    """Take note of the lane of a record that failed: those behind it may have to wait for it."""
    if isinstance(result, BaseException) and work.lane is not None:
        lanes.add(work.lane)


def sees_outage(work: Work, result: Result) -> bool:
    """Whether a call has failed as calls do while what its handler depends on is away."""
    guard = work.handler.guard
    return guard is not None and isinstance(result, BaseException) and guard.sees_outage(result)


def raised(context: Context | BatchContext, error: BaseException) -> BaseException:
    """What a call raised: nothing that it sent counts."""
    context.close()
    return blameless(error)


def blameless(error: BaseException) -> BaseException:
    """Anything that a function raises is its record's; but somebody who wants to end it may."""
    raise_ctrl_c(error)
    return error
