"""Waiting with a deadline, and one process at a time."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redrive.errors import LocalError

POLL_SECONDS = 0.02


def wait_until(check: Callable[[], bool], timeout: float) -> bool:
    """Poll `check`; False if it did not hold within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


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
