"""Handlers that do not come back: found, told with their stacks, and given up."""

from __future__ import annotations

import logging
import sys
import traceback
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.errors import HandlerTimeout

if TYPE_CHECKING:
    from redrive.processing.dispatcher import Dispatcher
    from redrive.processing.scope import Scope, UnderWay

log: Final = logging.getLogger("redrive.processing")

_OURS: Final = "redrive.processing."


class GivenUp(NamedTuple):
    """A call that was given up, and what its records have failed with."""

    call: UnderWay
    error: HandlerTimeout


def give_up_hung(scope: Scope, dispatcher: Dispatcher) -> list[GivenUp]:
    """Give up the calls whose time is over; gives them. Their threads cannot be ended.

    Those within units of work are only taken over: whoever can wait for the database has to end
    them (`Units.give_up`).
    """
    given_up: list[GivenUp] = []
    now = monotonic()
    for thread, call in list(scope.under_way.items()):
        handler, record = call.lot.handler, call.works[0].record
        timeout = handler.timeout
        if timeout is None or now - call.since < timeout / 1000 or call.lot.abandoned:
            continue
        stack = stack_of(thread)
        if not scope.take_over(thread, call):
            continue
        error = HandlerTimeout(
            f"the handler of {handler.topic!r} did not end within {timeout} ms for {record.place}"
        )
        in_unit = scope.units is not None
        if not in_unit:
            dispatcher.give_up(call, error)
        log.error(
            "%s; %sits policy decides about the record. Its thread cannot be ended: it is replaced,"
            " and lost until the handler returns. It is here:\n%s",
            error,
            "its database transaction is ended, and " if in_unit else "",
            stack,
            extra={
                "app": scope.app.name,
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
            },
        )
        given_up.append(GivenUp(call, error))
    return given_up


def end_unit(scope: Scope, given_up: GivenUp, dispatcher: Dispatcher) -> None:
    """End a call that was given up, where it is part of a unit of work."""
    if scope.units is not None:
        call, error = given_up
        scope.units.give_up(call.lot, call.works, error, dispatcher)


def stack_of(thread: int) -> str:
    """Where a thread is, from where redrive calls the user's function."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 -- the only way to see another thread
    if frame is None:
        return "(it has ended)"
    calls = [*traceback.walk_stack(frame)][::-1]
    modules = [str(each.f_globals.get("__name__")) for each, _ in calls]
    begins = (
        number
        for number, (caller, called) in enumerate(pairwise(modules), start=1)
        if caller.startswith(_OURS) and not called.startswith("redrive.")
    )
    return "".join(traceback.StackSummary.extract(calls[next(begins, 0) :]).format())
