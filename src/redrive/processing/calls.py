"""What all calls of handlers have in common, before and after."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING

from redrive.envelope import text_of
from redrive.errors import Undecodable
from redrive.policy import causes
from redrive.signals import Signal

if TYPE_CHECKING:
    from redrive.processing.context import BatchContext, Context
    from redrive.processing.work import Work


def decoded(work: Work) -> object:
    """The decoded value. A null value has nothing to decode: it is a tombstone, not a mistake."""
    value, decode = work.record.value, work.handler.decode
    if value is None or decode is None:
        return value
    try:
        return decode(value)
    except Exception as error:
        retry_on = work.handler.retry.retry_on or ()
        if isinstance(error, Signal) or any(isinstance(cause, retry_on) for cause in causes(error)):
            raise  # a schema registry that is down is no reason to bury anybody
        raise Undecodable(
            f"the value of {work.record.place} cannot be decoded: {type(error).__name__}:"
            f" {text_of(error)}"
        ) from error


def nothing_to_await(returned: object) -> None:
    """Refuse what a function returned to be awaited: its work has not begun, and never would."""
    if returned is None or not isinstance(returned, Awaitable):
        return
    if isinstance(returned, Coroutine):
        returned.close()
    raise TypeError("the function is not async, but returned something to await: make it async def")


def raised(context: Context | BatchContext, error: BaseException) -> BaseException:
    """What a call raised: nothing that it sent counts."""
    context.close()
    return blameless(error)


def blameless(error: BaseException) -> BaseException:
    """Anything that a function raises is its record's; but somebody who wants to end it may."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    return error
