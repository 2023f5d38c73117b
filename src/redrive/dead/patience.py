"""Patience: functions of users get so much time, in a thread beside; one that hangs is left behind.

Python cannot stop a thread. What hangs keeps no command from ending, as it is a daemon, and another
thread takes its place. That is done a few times only: each of them holds memory, and perhaps locks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import get_ident
from types import TracebackType
from typing import Any, TypeVar

from redrive.durations import text
from redrive.errors import HandlerTimeout
from redrive.threads import begin
from redrive.tuning import TRIAL_HANGING

_T = TypeVar("_T")
Run = Callable[[asyncio.Runner], _T]
"""Gets what runs coroutines in the thread that calls it."""


class Patience:
    """Calls functions that may take any time, one after the other."""

    def __init__(self) -> None:
        self._thread: _Thread | None = None
        self._hanging: list[_Thread] = []
        self._in_a_row = 0

    @property
    def is_over(self) -> bool:
        """Whether so many have not ended in time that no more should be called."""
        self._hanging = [each for each in self._hanging if each.is_alive]
        return max(self._in_a_row, len(self._hanging)) >= TRIAL_HANGING

    def call(self, run: Run[_T], seconds: float, grace: float = 0.0) -> _T:
        """What a function returns; HandlerTimeout if it does not end in that time.

        `grace`: seconds in which it may find out by itself that its time is over.
        """
        self._thread = thread = self._thread or _Thread()
        end: Future[_T] = thread.call(run)
        if not wait([end], seconds + grace).done:
            self._thread = None
            self._hanging.append(thread)
            self._in_a_row += 1
            thread.end()  # when it comes back, if it does
            raise did_not_end(seconds).with_traceback(thread.stands_at())
        by_itself = isinstance(end.exception(), HandlerTimeout)
        self._in_a_row = self._in_a_row + 1 if by_itself else 0
        return end.result()

    def close(self) -> None:
        """End the thread that waits for calls, if there is one; the next call begins another."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None


def did_not_end(seconds: float) -> HandlerTimeout:
    """The error of a call that was given up."""
    return HandlerTimeout(f"did not end within {text(round(seconds * 1000))}")


class _Thread:
    """One thread that makes calls."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Run[Any], Future[Any]] | None] = SimpleQueue()
        self._number: Future[int] = Future()
        self._over = begin(self._run, name="redrive-trial")

    @property
    def is_alive(self) -> bool:
        return not self._over.done()

    def call(self, run: Run[_T]) -> Future[_T]:
        end: Future[_T] = Future()
        self._calls.put((run, end))
        return end

    def end(self) -> None:
        """End it after the calls that it was given."""
        self._calls.put(None)

    def stands_at(self) -> TracebackType | None:
        """Where it is now, as an error that was raised there would say it."""
        frame = sys._current_frames().get(self._number.result())  # noqa: SLF001 -- the only way to see another thread
        found: TracebackType | None = None
        while frame is not None:
            found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno or 1)
            frame = frame.f_back
        return found

    def _run(self) -> None:
        self._number.set_result(get_ident())
        runner = asyncio.Runner()  # it makes a loop only if it has to run something
        try:
            while (given := self._calls.get()) is not None:
                run, end = given
                try:
                    end.set_result(run(runner))
                except BaseException as error:  # noqa: BLE001 -- whoever waits gets it
                    end.set_exception(error)
        finally:
            runner.close()
