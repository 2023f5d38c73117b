"""Ruling: somebody says something about parked records. In a thread, as it may read all of them.

No request waits for that: the page of parked records says when it is done, or why it failed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Lock

from redrive.dead.desk import UnderWayError
from redrive.errors import RedriveError
from redrive.threads import begin
from redrive.tuning import CONSOLE_SCAN_SECONDS


class Ruling:
    """One rule at a time, of one app."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._end: Future[None] | None = None

    def say(self, run: Callable[[], None]) -> None:
        """Begin to write a rule; returns when it is written, or takes long; raises what refuses it.

        Double clicks and others who come meanwhile are refused.
        """
        with self._lock:
            if self.under_way:
                raise UnderWayError(
                    "another rule is being written: look at the page again in a moment"
                )
            self._end = end = begin(run, name="redrive-console-rule")
        wait([end], CONSOLE_SCAN_SECONDS)
        if end.done():
            self._end = None  # whoever has asked hears how it went, and nobody else has to
            end.result()

    @property
    def under_way(self) -> bool:
        """Whether one is being written."""
        end = self._end
        return end is not None and not end.done()

    @property
    def problem(self) -> str:
        """Why the last one was not written, if nobody has waited for it; else empty."""
        end = self._end
        error = end.exception() if end is not None and end.done() else None
        if error is None:
            return ""
        return str(error) if isinstance(error, RedriveError) else repr(error)
