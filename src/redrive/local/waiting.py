"""Waiting with a deadline, and one process at a time."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redrive.errors import LocalError

POLL_SECONDS = 0.02
LONGEST_POLL_SECONDS = 1.0


def wait_until(check: Callable[[], bool], timeout: float, *, pause: float = POLL_SECONDS) -> bool:
    """Poll `check`; False if it did not hold within `timeout` seconds.

    A check that takes long is made less often: on a busy machine it would slow down what is waited
    for.
    """
    deadline = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        if check():
            return True
        now = time.monotonic()
        if now > deadline:
            return False
        time.sleep(min(max(pause, 4 * (now - asked)), LONGEST_POLL_SECONDS))


@contextmanager
def only_one(lock: Path, timeout: float) -> Iterator[None]:
    """Hold `lock` against every other process; the kernel frees it when its holder dies."""
    with lock.open("a") as file:
        if not wait_until(lambda: _taken(file.fileno()), timeout):
            raise LocalError(
                f"Another redrive process has held {lock} for {timeout:.0f} s; wait for it or stop"
                " it, then try again."
            )
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
