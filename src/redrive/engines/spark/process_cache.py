"""ProcessCache: what a process keeps for each app, from task to task, until a newer run begins.

Spark's Python workers live as long as their session, and runs come and go in it: the clients,
threads and resources of one that is over are let go of when the next one begins.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from redrive.engines.spark.spec import Spec
from redrive.tuning import KEPT_TO_CLOSE, KEPT_UNUSED

log: Final = logging.getLogger("redrive.spark")


class Closable(Protocol):
    """What is kept."""

    def close(self) -> None: ...


_Cached = TypeVar("_Cached", bound=Closable)
_Key = tuple[str, str, int]


class ProcessCache(Generic[_Cached]):
    """What this process keeps; used by one task at a time."""

    def __init__(self) -> None:
        self._made: dict[_Key, _Cached] = {}
        self._used: dict[_Key, float] = {}

    def get(self, spec: Spec, make: Callable[[Spec], _Cached]) -> _Cached:
        """That of this run; made when it is first asked for."""
        # A fork has the parent's objects, but not its threads: it makes its own.
        key = (spec.target, spec.run, os.getpid())
        if key not in self._made:
            self._let_go(spec.target)
            self._made[key] = make(spec)
        self._used[key] = monotonic()
        return self._made[key]

    def pop_all(self) -> list[_Cached]:
        """All that this process has made, for whoever closes it; nothing is kept any more."""
        mine = [key for key in self._made if key[2] == os.getpid()]
        return [self._made.pop(key) for key in mine]

    def _let_go(self, target: str) -> None:
        long_ago = monotonic() - KEPT_UNUSED
        for key in list(self._made):
            app, _, process = key
            if process == os.getpid() and (app == target or self._used[key] < long_ago):
                _close(app, self._made.pop(key))
                gc.collect()  # some clients have no close: they end when nobody holds them


def _close(app: str, kept: Closable) -> None:
    def close() -> None:
        try:
            kept.close()
        except Exception:
            # The user's own, most likely: nobody needs it any more.
            log.exception("a resource of an earlier run of %s did not close", app)

    closing = threading.Thread(target=close, name="redrive-close", daemon=True)
    closing.start()
    closing.join(KEPT_TO_CLOSE)
