"""BoundedCode: calls code of the app for pages: in few threads of its own, and not for ever.

A decoder may hang. Pages are answered in threads that all of them share: opening a letter often
enough would stop every page.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Thread, local
from time import monotonic
from typing import Any

from redrive.dead.user_code import NotAnsweredError
from redrive.tuning import CONSOLE_CODE_SECONDS, CONSOLE_CODE_THREADS

_page = local()


@dataclass
class PageTime:
    """What the code of an app may take for one page, all its calls together."""

    until: float
    is_over: bool = False
    """Whether some call was not waited for."""


@contextmanager
def page_time(seconds: float = CONSOLE_CODE_SECONDS) -> Iterator[PageTime]:
    """Let all calls of this thread, within the block, have one deadline."""
    _page.time = found = PageTime(monotonic() + seconds)
    try:
        yield found
    finally:
        _page.time = None


@dataclass
class _Call:
    run: Callable[[], Any]
    key: Hashable
    begun: float
    end: Future[Any] = field(default_factory=Future)


class BoundedCode:
    """Calls code of one app. Threads that hang are lost, and then nothing is called any more."""

    def __init__(
        self, threads: int = CONSOLE_CODE_THREADS, seconds: float = CONSOLE_CODE_SECONDS
    ) -> None:
        self._most = threads
        self._seconds = seconds
        self._changed = Condition()
        self._calls: dict[Hashable, _Call] = {}
        """Those under way; whoever asks for the same waits for the same."""
        self._asked: SimpleQueue[_Call] = SimpleQueue()
        self._threads = 0

    def __call__(self, run: Callable[[], Any], key: Hashable) -> Any:
        """What the function returns or raises; NotAnsweredError, if it takes too long."""
        page: PageTime | None = getattr(_page, "time", None)
        until = monotonic() + self._seconds
        until = until if page is None else min(until, page.until)
        call = self._begun(run, key, until)
        if call is not None and not self._hangs(call):
            try:
                return call.end.result(max(0.0, until - monotonic()))
            except TimeoutError:
                if call.end.done():  # the function has raised it
                    raise
        if page is not None:
            page.is_over = True
        raise NotAnsweredError(f"the decoder did not answer within {self._seconds:g} s")

    def _begun(self, run: Callable[[], Any], key: Hashable, until: float) -> _Call | None:
        """The call, as soon as a thread is free for it; None: there is none in time."""
        with self._changed:
            while key not in self._calls and len(self._calls) >= self._most:
                left = until - monotonic()
                # One that has hung so long will not end soon: nobody waits for its thread.
                if left <= 0 or all(map(self._hangs, self._calls.values())):
                    return None
                self._changed.wait(left)
            if key not in self._calls:
                self._calls[key] = call = _Call(run, key, monotonic())
                self._asked.put(call)
                self._ensure_threads()
            return self._calls[key]

    def _hangs(self, call: _Call) -> bool:
        return not call.end.done() and monotonic() - call.begun >= self._seconds

    def _ensure_threads(self) -> None:
        if self._threads < len(self._calls):
            self._threads += 1
            Thread(target=self._work, name="redrive-console-code", daemon=True).start()

    def _work(self) -> None:
        while True:
            call = self._asked.get()
            try:
                found, problem = call.run(), None
            except BaseException as error:  # noqa: BLE001 -- whoever waits gets it
                found, problem = None, error
            with self._changed:  # first: who asks from here on is not told what was before
                del self._calls[call.key]
                self._changed.notify_all()
            if problem is None:
                call.end.set_result(found)
            else:
                call.end.set_exception(problem)
            del call, found, problem  # they may be large, and the next may be long in coming
