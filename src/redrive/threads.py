"""Threads that nobody joins: an error that ends one is reported, never lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event, Thread, current_thread, main_thread
from time import monotonic
from typing import ParamSpec, TypeVar

from redrive.tuning import LOOK_REST, LOOK_SELDOMEST

_P = ParamSpec("_P")
_Result = TypeVar("_Result")

OnDeath = Callable[[BaseException], None]
"""Gets the error that ended a thread."""


def watched(run: Callable[_P, object], on_death: OnDeath) -> Callable[_P, None]:
    """The same function for a thread or a pool: whatever it raises is reported."""

    def run_watched(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            run(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 -- nobody else would see it
            on_death(error)

    return run_watched


def start_thread(run: Callable[[], object], *, name: str, on_death: OnDeath) -> Thread:
    """Start a daemon thread; an error that ends it is reported."""
    thread = Thread(target=watched(run, on_death), name=name, daemon=True)
    thread.start()
    return thread


def run_within(seconds: float, run: Callable[[], _Result], *, name: str) -> _Result:
    """Run something that may take any time. TimeoutError: it is still running, and left alone."""
    return begin(run, name=name).result(seconds)


class Looking:
    """Looks now and then; the longer a look takes, the more seldom.

    What there is to look at may be a thousand partitions: while something is waited for, looking
    must not take the core of those who are waited for.
    """

    def __init__(
        self, look: Callable[[], object], every: float, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._look = look
        self._every = every
        self._clock = clock
        self.seconds = every
        """How long to wait until the next look."""

    def __call__(self) -> None:
        """Look."""
        began = self._clock()
        self._look()
        took = self._clock() - began
        self.seconds = max(self._every, min(took * LOOK_REST, LOOK_SELDOMEST))


@contextmanager
def attending(look: Callable[[], None], *, every: float, name: str) -> Iterator[None]:
    """Look every so many seconds, in a thread of its own, within the block; or more seldom.

    An error of looking is raised at the end, unless the block has raised one.
    """
    over, looking = Event(), Looking(look, every)

    def look_until_the_end() -> None:
        while not over.wait(looking.seconds):
            looking()

    end = begin(look_until_the_end, name=name)
    try:
        yield
    except BaseException:
        over.set()
        futures.wait([end])
        raise
    over.set()
    end.result()


def begin(run: Callable[[], _Result], *, name: str) -> Future[_Result]:
    """Start something that may take any time, in its own thread; the future has its result."""
    end: Future[_Result] = Future()

    def run_to_its_end() -> None:
        try:
            end.set_result(run())
        except BaseException as error:  # noqa: BLE001 -- whoever waits gets it
            end.set_exception(error)

    Thread(target=run_to_its_end, name=name, daemon=True).start()
    return end


def raise_ctrl_c(error: BaseException) -> None:
    """Re-raise the error if somebody wants to end the process; not if code has merely raised it.

    A signal raises KeyboardInterrupt only in the main thread, and only where a function handles
    it: Python's own, or that of a SparkContext or a notebook.
    """
    if (
        isinstance(error, KeyboardInterrupt)
        and current_thread() is main_thread()
        and callable(signal.getsignal(signal.SIGINT))
    ):
        raise error
