"""Threads that nobody joins: an error that ends one is reported, never lost."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread, main_thread
from typing import ParamSpec, TypeVar

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

    Python raises KeyboardInterrupt for a signal only in the main thread, and only if it handles
    that signal itself.
    """
    if (
        isinstance(error, KeyboardInterrupt)
        and current_thread() is main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        raise error
