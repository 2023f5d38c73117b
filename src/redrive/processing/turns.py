"""Turns: a thread calls a plain handler for fresh records, one after the other.

Most records of most apps are fresh, have a plain function for a handler, and do not fail. They need
no lane and no work of their own: a turn takes them straight out of the queue in which they wait.
"""

from __future__ import annotations

from collections import deque
from math import inf
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING

from redrive.envelope import addressee
from redrive.processing import call_rules
from redrive.processing.context import Context
from redrive.processing.lots import Lot
from redrive.processing.work import Lane, Work
from redrive.tuning import COUNTED_ALONE

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.processing.fresh import Fresh
    from redrive.processing.outcomes import Report, Sent
    from redrive.processing.scope import Scope
    from redrive.record import Record


def is_plain(handler: Handler, scope: Scope) -> bool:
    """Whether turns may run its records: it is a plain function, and nobody watches each call."""
    special = handler.is_async or handler.batch or handler.ack == "manual" or handler.timeout
    return not special and scope.units is None


class Turn(Lot):
    """A lot without works: one is made only of a record that fails.

    Its thread takes records out of the queue, and adds what came of them to its own lists; others
    put records into the queue, take them away, and collect what is done, meanwhile. Each of these
    steps is one of Python's own, which no other thread can come between.
    """

    __slots__ = (
        "_done",
        "_fresh",
        "_sent",
        "broken_up",
        "calls",
        "failed",
        "lane",
        "met_odd",
        "queue",
    )

    def __init__(self, fresh: Fresh, handler: Handler, queue: deque[Record]) -> None:
        super().__init__(fresh.processor, [], [], handler)
        self._fresh = fresh
        self.queue = queue
        """Where it takes them from; if others take those away, it stays empty."""
        self._done: list[int] = []
        self._sent: list[Sent] = []
        self.calls = 0
        """How many records it has run, with the one that failed."""
        self.failed: tuple[Work, BaseException] | None = None
        self.met_odd = False
        """Whether it ended at a record that is not fresh."""
        self.broken_up = False
        """Whether those behind the record that runs were put into their lanes."""
        self.lane: Lane | None = None
        """The lane of that record, which is occupied until it ends."""

    def run(self, until: float = inf) -> None:
        """Run records up to the first that fails or is not fresh; none begins after `until`."""
        queue, done, sent = self.queue, self._done, self._sent
        handler, scope = self.handler, self.processor.scope
        allowed = handler.sends
        self.thread = get_ident()
        slow: list[float] = []
        count = 0
        start = before = self.since = monotonic()
        until = min(until, start + self._fresh.turn_seconds)
        while queue:
            try:
                # Looked at before it is taken: whoever takes the others away knows which one runs.
                record = self.current = queue[0]
                if record.headers and is_odd(record):
                    self.met_odd = True
                    break
                taken = queue.popleft()
            except IndexError:
                break  # they were taken away meanwhile
            if taken is not record:
                queue.append(taken)  # another thread was quicker: records without order
                continue
            context = FreshContext(self, record, scope, allowed)
            error = call_fresh(handler, record, context)
            count += 1
            now = self.since = monotonic()
            if now - before > COUNTED_ALONE:
                slow.append(now - before)
            before = now
            if error is not None:
                self.failed = context.work, error
                break
            sends = context._sends  # noqa: SLF001 -- without a call for each
            if sends is None:
                done.append(record[2])
            else:
                sent.append((record[2], sends, record))
            if now >= until:
                break
        self.calls += count
        self.seconds = (self.seconds or 0.0) + before - start
        self._count(before - start, count, slow)

    def collect(self, report: Report) -> None:
        """Take what is done so far, and was not taken before."""
        number = len(self._done)
        report.done += self._done[:number]
        del self._done[:number]
        number = len(self._sent)
        report.sent += self._sent[:number]
        del self._sent[:number]

    def end(self, now: int) -> Report:
        """End the turn: take what came of its records."""
        return self._fresh.end(self, now)

    @property
    def may_go_on(self) -> bool:
        """Whether the thread may have another turn at once, if nobody else waits for one."""
        over = self.met_odd or self.failed or self.cancelled
        return self._fresh.is_shared and bool(self.queue) and not over

    def received(self, record: Record) -> int:
        """When a record of its was read."""
        return self._fresh.received(record.offset)

    def _count(self, seconds: float, quick: int, slow: list[float]) -> None:
        """Count how long calls took: those that took long one by one."""
        times = self.processor.scope.times
        quick -= len(slow)
        if times is None:
            return
        for each in slow:
            times.add(each)
        if quick > 0:
            times.add((seconds - sum(slow)) / quick, quick)


class FreshContext(Context):
    """A context whose work is made when somebody asks for it: few handlers do."""

    __slots__ = ("_made", "_record", "_turn")

    def __init__(
        self, turn: Turn, record: Record, scope: Scope, allowed: tuple[str, ...] | None
    ) -> None:
        self._scope = scope
        self._allowed = allowed
        self._sends = None
        self._open = True
        self._turn = turn
        self._record = record

    @property
    def work(self) -> Work:
        """The record as one that goes the ordinary way."""
        try:
            return self._made
        except AttributeError:
            turn, record = self._turn, self._record
            self._made: Work = Work(
                turn.processor, record, turn.handler, record.offset, turn.received(record)
            )
            return self._made

    _work = work


def is_odd(record: Record) -> bool:
    """Whether a record was written by redrive, for somebody: it has to go the ordinary way."""
    return addressee(record.headers) is not None


def call_fresh(handler: Handler, record: Record, context: FreshContext) -> BaseException | None:
    """Call a plain handler for a fresh record; returns what it raised."""
    try:
        if handler.decode is not None:
            record.data = call_rules.decoded(context.work)
        returned = handler.call(record, context)
        if returned is not None:
            call_rules.check_returned(returned, handler.call, acked=False)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return call_rules.raised(context, error)
    context._open = False  # noqa: SLF001 -- as close() does, without the call
    return None
