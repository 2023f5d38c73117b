"""Acknowledgement: the word of one record that is tried and whose handler acknowledges by itself.

It may come from any thread or task, before the handler returns or later. A record whose word does
not come has not passed: nobody knows what would become of it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING

from redrive.processing.work import Pending, Result
from redrive.tuning import TRIAL_PATIENCE

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.processing.work import Work


def patience_of(handler: Handler) -> float:
    """The seconds in which a handler has to acknowledge its record."""
    return TRIAL_PATIENCE if handler.timeout is None else handler.timeout / 1000


class Acknowledgement:
    """What one record's handler says of it, once it says something."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._patience = patience_of(work.handler)
        self._word: Future[Result] = Future()

    def take(self, work: Work, _context: object, result: Result) -> None:
        """Hear what is said of a record; words about earlier ones come too late."""
        if work is self._work:
            with suppress(InvalidStateError):  # the first word counts
                self._word.set_result(result)

    def after(self, returned: Result) -> Result:
        """What came of a call that returned this; still pending: nothing was said in time."""
        if self._is_awaited(returned):
            with suppress(TimeoutError):
                return self._word.result(self._patience)
        return self._first(returned)

    async def after_async(self, returned: Result) -> Result:
        """The same on the event loop, where the handler's own tasks go on meanwhile."""
        if self._is_awaited(returned):
            await asyncio.wait([asyncio.wrap_future(self._word)], timeout=self._patience)
        return self._first(returned)

    def _is_awaited(self, returned: Result) -> bool:
        return isinstance(returned, Pending) and not self._word.done()

    def _first(self, returned: Result) -> Result:
        """The first word counts, also if the handler failed after it."""
        return self._word.result() if self._word.done() else returned
