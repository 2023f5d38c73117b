"""Handlers that do not come back: found, told with their stacks, and given up."""

from __future__ import annotations

import logging
import sys
import traceback
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.errors import HandlerTimeout

if TYPE_CHECKING:
    from redrive.processing.dispatcher import Dispatcher
    from redrive.processing.scope import Scope, UnderWay

log: Final = logging.getLogger("redrive.processing")


def give_up_hung(scope: Scope, dispatcher: Dispatcher) -> list[UnderWay]:
    """Give up the calls whose time is over; gives them. Their threads cannot be ended."""
    given_up: list[UnderWay] = []
    now = monotonic()
    for thread, call in list(scope.under_way.items()):
        timeout = call.work.handler.timeout
        if timeout is None or now - call.since < timeout / 1000 or call.lot.abandoned:
            continue
        stack = _stack_of(thread)
        error = HandlerTimeout(
            f"the handler of {call.work.handler.topic!r} did not end within {timeout} ms"
            f" for {call.work.record.place}"
        )
        if not dispatcher.give_up(call.lot, error):
            continue
        log.error(
            "%s; its policy decides about the record. Its thread cannot be ended: it is replaced,"
            " and lost until the handler returns. It is here:\n%s",
            error,
            stack,
            extra={
                "app": scope.app.name,
                "topic": call.work.record.topic,
                "partition": call.work.record.partition,
                "offset": call.work.record.offset,
            },
        )
        given_up.append(call)
    return given_up


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 -- the only way to see another thread
    return "".join(traceback.format_stack(frame)) if frame is not None else "(it has ended)"
