"""Lots: records that are handed to a thread, or to an event loop, together; they run themselves."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from math import inf
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.coroutines import run_sync
from redrive.processing import call_rules, calling
from redrive.processing.scope import GivenUpError
from redrive.processing.work import BEHIND, Lane, Result, Work

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.processing.outcomes import Report
    from redrive.processing.processor import PartitionProcessor
    from redrive.record import Record

log: Final = logging.getLogger("redrive.processing")


class Lot:
    """Records that one thread runs one after the other; or one call of a batch handler.

    Its thread takes a record out of `todo`, runs it, and adds what came of it to `results`; others
    take records away, and look at results, meanwhile. Each of these steps is one of Python's own,
    which no other thread can come between.
    """

    __slots__ = (
        "abandoned",
        "cancelled",
        "current",
        "handler",
        "lanes",
        "processor",
        "recovering",
        "reported",
        "results",
        "seconds",
        "since",
        "thread",
        "todo",
        "works",
    )

    def __init__(
        self,
        processor: PartitionProcessor,
        works: list[Work],
        lanes: list[Lane],
        handler: Handler | None = None,
    ) -> None:
        self.processor = processor
        self.works = works
        self.lanes = lanes
        """Those that it frees when it ends."""
        self.handler = handler or works[0].handler
        self.recovering = bool(works) and works[0].ending is not None
        self.todo = deque(works)
        """Those that have not begun."""
        self.results: list[Result] = []
        """What came of those that have run."""
        self.reported = 0
        """How many of the results were taken."""
        self.abandoned = False
        """Set when its thread did not come back in time: whatever it brings later is too late."""
        self.seconds: float | None = None
        """How long its records took, once they have run."""
        self.current: Record | None = None
        """The record whose handler runs, or ran last; of a batch, the first of its records."""
        self.since = monotonic()
        """When it began."""
        self.thread: int | None = None
        """The thread that runs it; None on an event loop."""
        self.cancelled = False
        """Set when the partition is taken away: what has not begun shall not."""

    def note_call(self, record: Record) -> None:
        """Take note that a handler is called: with this record, or with it first."""
        self.current, self.since = record, monotonic()

    def begin(self, most: int | None = None) -> list[Work]:
        """Take out those that run next, all or so many; whoever calls this is its thread."""
        self.since = monotonic()
        works: list[Work] = []
        try:
            while len(works) != most:
                works.append(self.todo.popleft())
        except IndexError:
            pass  # these were the last
        return works

    def collect(self, report: Report) -> None:
        """Take what is done so far; whatever else came of a record is taken when the lot ends."""
        if self.recovering:
            return
        for result in self.results[self.reported :]:
            work = self.works[self.reported]
            if result is None:
                report.done.append(work.offset)
            elif type(result) is list:
                report.sent.append((work.offset, result, work))
            else:
                break
            self.reported += 1

    def take_todo(self) -> list[Work]:
        """Take those that have not begun, from any thread: the lot ends after the one that runs."""
        rest: list[Work] = []
        try:
            while True:
                rest.append(self.todo.pop())
        except IndexError:
            rest.reverse()
        gone = set(rest)
        self.works = [work for work in self.works if work not in gone]
        return rest

    def let_go(self, lane: Lane | None) -> None:
        """Somebody else frees that lane: whoever does so does it once."""
        if lane is not None:
            self.lanes.remove(lane)

    @property
    def in_one_call(self) -> bool:
        """Whether all its records go into one call of a batch handler."""
        return self.handler.batch is not None and not self.recovering

    @property
    def is_async(self) -> bool:
        """Whether the function to be called is async."""
        return self.handler.recover_is_async if self.recovering else self.handler.is_async

    @property
    def may_hang(self) -> bool:
        """Whether the function has a time-out, and cannot be interrupted when it is over."""
        return self.handler.timeout is not None and not self.is_async

    # How it runs

    def run(self, until: float = inf) -> None:
        """Run it, if its function is sync; what comes of its records is in `results`.

        It stops at the first record that fails, because those behind it may have to wait for it,
        and begins with no record after `until` on the monotonic clock.
        """
        self.thread = get_ident()
        try:
            if self.in_one_call:
                run_sync(self._call_batches())
            else:
                self._call_each(until)
        except GivenUpError as error:
            log.warning("%s: what it did does not count", error)

    async def run_async(self) -> None:
        """Run it on the running event loop, if its function is async."""
        if self.in_one_call:
            await self._call_batches()
            return
        while not self.cancelled and (begun := self.begin(1)):
            self.note_call(begun[0].record)
            result = await calling.call_async(begun[0], self.processor.scope)
            self.results.append(result)
            if isinstance(result, BaseException):
                break

    def end(self, now: int) -> Report:
        """End it: its records have their results, or go back to where they waited."""
        return self.processor.complete(self, now)

    @property
    def may_go_on(self) -> bool:
        """Whether its thread may run it once more at once, if nobody else waits for a thread."""
        return False

    def _call_each(self, until: float) -> None:
        todo, results, scope = self.todo, self.results, self.processor.scope
        plain = not self.recovering and self.handler.ack != "manual"
        call = calling.call_plainly if plain else calling.call_now
        took: list[float] = []
        may_hang = self.may_hang
        start = now = monotonic()
        while now < until and not self.cancelled:
            try:
                work = todo.popleft()
            except IndexError:
                break  # it was the last, or the rest was taken away
            began = now
            self.current, self.since = work.record, began
            if may_hang:
                scope.watch(self, (work,))
            result = call(work, scope)
            if may_hang:
                scope.came_back(self)
            results.append(result)
            now = monotonic()
            took.append(now - began)
            if isinstance(result, BaseException):
                break
        self.seconds = now - start
        if scope.times is not None:
            scope.times.add_all(took)

    async def _call_batches(self) -> None:
        """Call a batch handler once; one by one, where it has not said which record failed."""
        works = self.begin()
        together = await self._call_batch(works)
        if together is not None:
            self.results.extend(together)
            return
        failed: set[Lane | None] = set()
        for work in works:
            if self.cancelled:
                break
            if work.lane in failed:
                self.results.append(BEHIND)
                continue
            self.results.extend(await self._call_batch([work]) or ())
            call_rules.note_failed(work, self.results[-1], failed)

    async def _call_batch(self, works: Sequence[Work]) -> list[Result] | None:
        """What came of each record; None: the handler failed, and did not say for which."""
        scope = self.processor.scope
        self.note_call(works[0].record)
        if self.may_hang:
            scope.watch(self, works)
        results = await calling.call_batch(works, scope, is_async=self.is_async)
        if self.may_hang:
            scope.came_back(self)
        return results
