"""Jobs: operations that were begun on the page, each in a thread; they outlive who has begun them.

All that is known of a job is in Kafka. If the console is killed, the job can be resumed, by the
page or by `redrive dead jobs --resume`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from redrive.dead import Operation
from redrive.dead.desk import UnderWayError
from redrive.dead.running import OnProgress
from redrive.dead.watching import Fate
from redrive.errors import NotReadyError, RedriveError
from redrive.threads import begin
from redrive.tuning import CONSOLE_JOB_SECONDS

log: Final = logging.getLogger("redrive.console")

Run = Callable[[OnProgress, Callable[[], str]], Operation]
"""Runs an operation; is shown its progress, and asks whether to stop, and by whom."""


class Standing(NamedTuple):
    """How a job of this process stands."""

    operation: Operation
    fate: Fate | None


@dataclass
class _Job:
    end: Future[Operation] = field(default_factory=Future)
    stopped: str = ""
    """Who has asked it to stop; empty: nobody."""
    standing: Standing | None = None


class Jobs:
    """The jobs of one app that this process runs: one at a time, as the letters have one owner."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._job: _Job | None = None
        self.said = ""
        """How the last one failed, if it did."""
        self.version = 0

    def start(self, run: Run) -> Operation:
        """Begin a job, and return it as soon as Kafka knows of it; raises what refuses it."""
        begun: Future[Operation] = Future()
        with self._lock:
            if self._job is not None and not self._job.end.done():
                raise UnderWayError("another job of this app is under way here: wait, or pause it")
            before, job = self._job, _Job()
            self._job = job
            self.said = ""

        def show(operation: Operation, fate: Fate | None) -> None:
            kept = job.standing.fate if job.standing is not None and fate is None else fate
            job.standing = Standing(operation, kept)
            self.version += 1
            if not begun.done():
                begun.set_result(operation)

        def work() -> Operation:
            try:
                operation = run(show, lambda: job.stopped)
            except BaseException as error:
                self.said = str(error) if isinstance(error, RedriveError) else repr(error)
                self.version += 1
                if begun.done():
                    log.error("a job of the console has failed: %s", self.said)  # noqa: TRY400 -- said on the page
                else:
                    begun.set_exception(error)
                raise
            show(operation, None)
            return operation

        try:
            job.end = begin(work, name="redrive-console-job")
        except BaseException:  # no thread could be had: nothing is under way
            self._job = before
            raise
        try:
            return begun.result(CONSOLE_JOB_SECONDS)
        except TimeoutError:
            if begun.done():  # it is the job that raised it
                raise
            # Whoever asked does not see it begin, and may ask again: it must not go on by itself.
            job.stopped = job.stopped or "the console, as it took long to begin"
            raise NotReadyError(
                f"the job did not begin within {CONSOLE_JOB_SECONDS:g} s; if it still does, it is"
                " paused at once, and can be resumed from the audit page"
            ) from None

    @property
    def standing(self) -> Standing | None:
        """How the last job of this process stands."""
        return None if self._job is None else self._job.standing

    def said_of(self, name: str) -> str:
        """How the job of that id failed here; empty: it did not, or it is not the last one."""
        standing = self.standing
        return self.said if standing is not None and standing.operation.id == name else ""

    def pause(self, name: str, by: str) -> bool:
        """Pause the job of that id, if this process runs it; False: it does not."""
        job = self._job
        if job is None or job.end.done() or job.standing is None:
            return False
        if job.standing.operation.id != name:
            return False
        job.stopped = by
        return True

    def close(self, seconds: float) -> None:
        """Pause what runs, and wait for it."""
        job = self._job
        if job is not None and not job.end.done():
            job.stopped = job.stopped or "the console, as it was stopped"
            wait([job.end], seconds)  # one that does not end in time can be resumed
