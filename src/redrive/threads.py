"""Threads that nobody waits for: what ends one of them is reported, never lost with it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from threading import Thread, current_thread, main_thread
from typing import ParamSpec

_P = ParamSpec("_P")

OnDeath = Callable[[BaseException], None]
"""Takes the error that ended a thread."""


def watched(run: Callable[_P, object], on_death: OnDeath) -> Callable[_P, None]:
    """The same function, for a thread or a pool: whatever it raises is reported."""

    def run_watched(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            run(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 -- nobody else would see it
            on_death(error)

    return run_watched


def start_thread(run: Callable[[], object], *, name: str, on_death: OnDeath) -> Thread:
    """Start a daemon thread; whatever ends it by an error is reported."""
    thread = Thread(target=watched(run, on_death), name=name, daemon=True)
    thread.start()
    return thread


def raise_ctrl_c(error: BaseException) -> None:
    """Raise the error where somebody wants to end the process; not where code has only raised it.

    Python raises KeyboardInterrupt for a signal in the main thread alone, and only while it handles
    that signal itself.
    """
    if (
        isinstance(error, KeyboardInterrupt)
        and current_thread() is main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        raise error
