"""Fates: what became of the copies of replays that are done, while somebody looks at their pages.

All copies are written when a replay is done, and none need be handled yet.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

from redrive.dead import Operation
from redrive.dead.watching import Fate, Watch
from redrive.ports import Clock
from redrive.threads import begin
from redrive.tuning import CONSOLE_FATE_SECONDS, CONSOLE_LOOK_EVERY

log: Final = logging.getLogger("redrive.console")
_KEPT: Final = 50


@dataclass
class _Followed:
    watch: Watch
    known: Fate | None = None
    asked_at: float = -inf
    looking: Future[Fate] | None = None


class Fates:
    """Asks on, now and then and in the background, until all copies are handled or dead."""

    def __init__(
        self,
        watch: Callable[[Operation], Watch | None],
        clock: Clock,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        """`watch`: where the copies of an operation can be seen; None: they cannot."""
        self._watch = watch
        self._clock = clock
        self._timer = timer
        self._lock = Lock()
        self._followed: OrderedDict[str, _Followed] = OrderedDict()

    def of(self, operation: Operation) -> Fate | None:
        """What is known by now; None: nothing yet, or it cannot be known."""
        if operation.kind != "replay" or operation.status != "done":
            return None
        with self._lock:
            followed = self._follow(operation)
            if followed is None:
                return None
            _take_over(operation, followed)
            if self._must_look(operation, followed):
                followed.asked_at = self._timer()
                followed.looking = begin(followed.watch.look, name="redrive-console-fate")
            return followed.known

    def _follow(self, operation: Operation) -> _Followed | None:
        found = self._followed.get(operation.id)
        if found is None:
            watch = self._watch(operation)
            if watch is None:
                return None
            found = self._followed[operation.id] = _Followed(watch)
            if len(self._followed) > _KEPT:
                self._followed.popitem(last=False)
        return found

    def _must_look(self, operation: Operation, followed: _Followed) -> bool:
        """Whether it is time; one look at a time, as it may read all that waits."""
        if followed.known is not None and followed.known.settled:
            return False
        if any(each.looking and not each.looking.done() for each in self._followed.values()):
            return False
        until = operation.updated + followed.watch.delay + CONSOLE_FATE_SECONDS * 1000
        is_late = followed.known is not None and self._clock.now() > until
        return not is_late and self._timer() - followed.asked_at >= CONSOLE_LOOK_EVERY


def _take_over(operation: Operation, followed: _Followed) -> None:
    """What the last look has found, if it has ended."""
    looking = followed.looking
    if looking is None or not looking.done():
        return
    followed.looking = None
    error = looking.exception()
    if error is None:
        followed.known = looking.result()
    else:
        log.warning("what became of %s cannot be seen now: %s", operation.id, error)
