"""Handlers that have been running for long: logged with their record and their stack."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from typing import Final

from redrive.processing.calls.lots import Lot
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.hanging import log_fields, stack_of
from redrive.threads import attending
from redrive.tuning import LONG_RUNNING, LONG_RUNNING_EVERY

log: Final = logging.getLogger("redrive.processing")


class LongRunning:
    """Watches the oldest of the handlers that run; whoever has time asks it to look."""

    def __init__(self, dispatcher: Dispatcher, timer: Callable[[], float]) -> None:
        self._dispatcher = dispatcher
        self._timer = timer
        self._patience = LONG_RUNNING
        self._looked = -inf

    def seconds(self) -> float:
        """For how long the oldest has been running; 0: none runs."""
        lot = self._dispatcher.oldest()
        return 0.0 if lot is None else max(0.0, self._timer() - lot.since)

    def watched(self) -> AbstractContextManager[None]:
        """Look now and then, in a thread of its own, within the block."""
        return attending(self.look, every=LONG_RUNNING_EVERY, name="redrive-watch")

    def look(self) -> None:
        """Log which one takes long; asked more often, it looks once a second."""
        if self._timer() - self._looked < LONG_RUNNING_EVERY:
            return
        self._looked = self._timer()
        lot = self._dispatcher.oldest()
        seconds = 0.0 if lot is None else self._timer() - lot.since
        if lot is None or seconds < LONG_RUNNING:
            self._patience = LONG_RUNNING
        elif seconds >= self._patience and lot.handler.timeout is None:  # else that will be over
            self._patience = 2 * seconds
            _log(lot, seconds)


def _log(lot: Lot, seconds: float) -> None:
    record = lot.current
    if record is None:
        return  # it has just returned
    where = "" if lot.thread is None else f" It is here:\n{stack_of(lot.thread)}"
    log.warning(
        "the handler of %r has been running for %.0f s for %s.%s",
        lot.handler.topic,
        seconds,
        record.place,
        where.rstrip(),
        extra=log_fields(lot.scope, record) | {"seconds": round(seconds, 1)},
    )
