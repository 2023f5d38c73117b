"""Handlers that hang: found, logged with their stacks, and given up."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from redrive.errors import HandlerTimeout
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.units import Units
from redrive.processing.work import Work
from redrive.record import Record

log: Final = logging.getLogger("redrive.processing")

_OURS: Final = "redrive.processing."


class GivenUp(NamedTuple):
    """A call that was given up, and what its record has failed with, if it was one."""

    lot: Lot
    works: Sequence[Work]
    error: HandlerTimeout


def give_up_hung(scope: Scope, dispatcher: Dispatcher, units: Units | None) -> list[GivenUp]:
    """Give up the calls whose time is over, and return them. Their threads cannot be ended.

    Those within units of work are not ended here: that may have to wait for the database.
    """
    given_up: list[GivenUp] = []
    for lot in dispatcher.under_way():
        call = lot.calling  # before `since`: that of the next call would be too young
        timeout = lot.handler.timeout
        if call is None or timeout is None or scope.timer() - lot.since < timeout / 1000:
            continue
        stack = stack_of(lot.thread or 0)
        if not lot.give_up(call):
            continue
        error = HandlerTimeout(
            f"the handler of {lot.handler.topic!r} did not end within {timeout} ms for"
            f" {_told(call)}"
        )
        if units is None:
            dispatcher.give_up(lot, call, error)
        _log(scope, call, error, stack, in_unit=units is not None)
        given_up.append(GivenUp(lot, call, error))
    return given_up


def _told(works: Sequence[Work]) -> str:
    first = works[0].record.place
    return f"{first}" if len(works) == 1 else f"{len(works)} records, {first} first"


def _log(
    scope: Scope, works: Sequence[Work], error: HandlerTimeout, stack: str, *, in_unit: bool
) -> None:
    log.error(
        "%s; %s%s. Python cannot stop its thread: another one takes its place. It is here:\n%s",
        error,
        "its database transaction is ended, and " if in_unit else "",
        "its policy decides about the record" if len(works) == 1 else "each is called alone next",
        stack,
        extra=log_fields(scope, works[0].record),
    )


def log_fields(scope: Scope, record: Record) -> dict[str, object]:
    """What a log line about a running handler says of its record, for machines."""
    return {
        "app": scope.app.name,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }


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
