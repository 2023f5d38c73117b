"""Lots: records that are handed to a thread, or to an event loop, together; they run themselves."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Final, TypeVar

from redrive.coroutines import run_sync
from redrive.errors import RedriveError
from redrive.processing.calls import invoke, rules
from redrive.processing.calls.scope import Scope
from redrive.processing.outcomes.report import Report
from redrive.processing.work import BEHIND, Assigned, Lane, Result, Work
from redrive.tuning import GUARD_BATCH

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.record import Record

log: Final = logging.getLogger("redrive.processing")

_T = TypeVar("_T")


class GivenUpError(RedriveError):
    """A call returned after it was given up: its records were judged, and are no longer its own."""


class Lot:
    """Records that one thread runs one after the other; or one call of a batch handler.

    Its thread takes a record out of `todo`, runs it, and adds what came of it to `results`; others
    take records away, and look at results, meanwhile. Each of these steps is one of Python's own,
    which no other thread can come between.
    """

    __slots__ = (
        "abandoned",
        "assigned",
        "calling",
        "calls",
        "cancelled",
        "current",
        "fails_with",
        "handler",
        "is_async",
        "lanes",
        "may_go_on",
        "met_odd",
        "odd",
        "recovering",
        "reported",
        "results",
        "scope",
        "seconds",
        "since",
        "thread",
        "todo",
        "works",
    )

    def __init__(
        self,
        scope: Scope,
        assigned: Assigned,
        works: list[Work],
        lanes: list[Lane],
        handler: Handler | None = None,
    ) -> None:
        self.scope = scope
        self.assigned = assigned
        self.works = works
        self.lanes = lanes
        """Those that are freed when it ends."""
        self.handler = handler or works[0].handler
        self.recovering = bool(works) and works[0].ending is not None
        asynchronous = self.handler.recover_is_async if self.recovering else self.handler.is_async
        self.is_async = asynchronous
        """Whether the function to be called is async."""
        self.todo = deque(works)
        """Those that have not begun."""
        self.results: list[Result] = []
        """What came of those that have run."""
        self.reported = 0
        """How many of the results were taken."""
        self.seconds = 0.0
        """How long its calls took; how many those were: `calls`."""
        self.calls = 0
        self.may_go_on = False
        """Whether its thread may run it once more at once, if nobody else waits for a thread."""
        self.met_odd = False
        """Whether it ended at a record that it cannot run."""
        self.odd: Sequence[Record] = ()
        """One of those that it has taken out of its queue."""
        self.current: Record | None = None
        """The record whose handler runs, or ran last; of a batch, the first of its records."""
        self.since = scope.timer()
        """When that call began."""
        self.calling: Sequence[Work] | None = None
        """The records of the call under way, if its function may hang."""
        self.thread: int | None = None
        """The thread that runs it; None on an event loop."""
        self.fails_with: BaseException | None = None
        """What its only record has failed with before: it is judged, and nobody is called."""
        self.cancelled = False
        """Set when the partition is taken away: what has not begun must not begin."""
        self.abandoned = False
        """Set when a call of it is given up: whatever its thread brings later is too late."""

    # What others see of it

    @property
    def in_one_call(self) -> bool:
        """Whether all its records go into one call of a batch handler."""
        return self.handler.batch is not None and not self.recovering

    @property
    def may_hang(self) -> bool:
        """Whether the function has a time-out, and cannot be interrupted when it is over."""
        return self.handler.timeout is not None and not self.is_async

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
        rest = taken(self.todo)
        gone = set(rest)
        self.works = [work for work in self.works if work not in gone]
        return rest

    # How it runs

    def begin(self, most: int | None = None) -> list[Work]:
        """Take out those that run next, all or so many; whoever calls this is its thread."""
        self.since = self.scope.timer()
        works: list[Work] = []
        try:
            while len(works) != most:
                works.append(self.todo.popleft())
        except IndexError:
            pass  # these were the last
        return works

    def calls_with(self, works: Sequence[Work]) -> None:
        """Note that a function is called with these records."""
        self.current, self.since = works[0].record, self.scope.timer()
        if self.may_hang:
            self.calling = works

    def returned(self) -> None:
        """Note that the function has returned; GivenUpError if it was given up before."""
        if self.calling is None:
            return
        with self.scope.giving_up:
            self.calling = None
            if self.abandoned:
                raise GivenUpError(f"the handler of {self.handler.topic!r} returned too late")

    def give_up(self, call: Sequence[Work]) -> bool:
        """Give up the call that hangs; False: it has just returned."""
        with self.scope.giving_up:
            if self.calling is not call or self.abandoned:
                return False
            self.abandoned = True
            return True

    def run(self, until: float = inf) -> None:
        """Run it, if its function is sync; what comes of its records is in `results`.

        It stops at the first record that fails, because those behind it may have to wait for it,
        and begins with no record after `until` on the monotonic clock.
        """
        self.thread = get_ident()
        if self.fails_with is not None:
            self._fail()
            return
        try:
            if self.in_one_call:
                run_sync(self._call_batches())
            else:
                self._call_each(until)
        except GivenUpError as error:
            log.warning("%s: its result is ignored", error)

    async def run_async(self) -> None:
        """Run it on the running event loop, if its function is async."""
        if self.fails_with is not None:
            self._fail()
            return
        if self.in_one_call:
            await self._call_batches()
            return
        while not self.cancelled and (begun := self.begin(1)):
            self.calls_with(begun)
            result = await invoke.call_async(begun[0], self.scope)
            self.results.append(result)
            if isinstance(result, BaseException):
                break

    def _fail(self) -> None:
        self.results += [self.fails_with for _ in self.begin()]

    def _call_each(self, until: float) -> None:
        todo, results, scope, timer = self.todo, self.results, self.scope, self.scope.timer
        plain = not self.recovering and self.handler.ack != "manual"
        call = invoke.call_plainly if plain else invoke.call_now
        took: list[float] = []
        may_hang = self.may_hang
        start = now = timer()
        while now < until and not self.cancelled:
            try:
                work = todo.popleft()
            except IndexError:
                break  # it was the last, or the rest was taken away
            began = now
            self.current, self.since = work.record, began
            if may_hang:
                self.calling = (work,)
            result = call(work, scope)
            if may_hang:
                self.returned()
            results.append(result)
            now = timer()
            took.append(now - began)
            if isinstance(result, BaseException):
                break
        self.seconds, self.calls = now - start, len(took)
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
        in_a_row = 0
        for work in works:
            if self.cancelled:
                break
            if work.lane in failed:
                self.results.append(BEHIND)
                continue
            self.results.extend(await self._call_batch([work]) or ())
            rules.note_failed(work, self.results[-1], failed)
            in_a_row = in_a_row + 1 if rules.sees_outage(work, self.results[-1]) else 0
            if in_a_row >= GUARD_BATCH:
                break  # the others go back, and are called together when it is over

    async def _call_batch(self, works: Sequence[Work]) -> list[Result] | None:
        """What came of each record; None: the handler failed, and did not say for which."""
        self.calls_with(works)
        results = await invoke.call_batch(works, self.scope, is_async=self.is_async)
        self.returned()
        return results


def taken(queue: deque[_T]) -> list[_T]:
    """Take all out of a queue that others take from meanwhile."""
    rest: list[_T] = []
    try:
        while True:
            rest.append(queue.pop())
    except IndexError:
        rest.reverse()
        return rest
