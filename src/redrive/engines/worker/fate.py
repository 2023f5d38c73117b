"""Fate: whether a worker has ended, and by which error."""

from __future__ import annotations

import logging
import threading
from typing import Final

from redrive.errors import RedriveError

log: Final = logging.getLogger("redrive.worker")


class WorkerError(RedriveError):
    """A worker ended with an error; the message is the sentence that says why."""


class Fate:
    """The first error ends the worker; those after it are its consequences."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def note(self, error: BaseException) -> None:
        """Note an error that ends the worker."""
        if self.error is None:
            self.error = error

    def on_death(self, error: BaseException) -> None:
        """A thread has ended by an error that it should have contained: nothing goes on without."""
        name = threading.current_thread().name
        log.error("thread %s died with %r: the worker stops", name, error, exc_info=error)
        self.note(error)

    def check(self) -> None:
        """Raise the error, once the worker has ended by one."""
        if self.ended.is_set() and self.error is not None:
            if isinstance(self.error, RedriveError):
                raise self.error
            raise WorkerError(f"the worker ended: {self.error!r}") from self.error
