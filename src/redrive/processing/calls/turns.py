"""Turns: a thread calls a plain handler for fresh records, one after the other.

Most records of most apps are fresh, have a plain function for a handler, and do not fail. They need
no lane and no work of their own: a turn takes them straight out of the queue in which they wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING

from redrive.envelope import addressee
from redrive.processing.calls import rules
from redrive.processing.calls.context import Context
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.outcomes.report import Report, Sent
from redrive.processing.work import Assigned, Work
from redrive.tuning import COUNTED_ALONE

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.handler import Handler
    from redrive.record import Record

Received = Callable[[int], int]
"""When the record with an offset was read."""


def is_plain(handler: Handler, app: App) -> bool:
    """Whether turns may run its records: it is a plain function, and nobody watches each call."""
    special = handler.is_async or handler.batch or handler.ack == "manual" or handler.timeout
    return not special and not app.guarantee.database


class Turn(Lot):
    """A lot without works: one is made only of a record that fails.

    Its thread takes records out of the queue, and adds what came of them to its own lists; others
    put records into the queue, take them away, and collect what is done, meanwhile. Each of these
    steps is one of Python's own, which no other thread can come between.
    """

    __slots__ = ("_done", "_longest", "_received", "_sent", "queue", "shared")

    def __init__(
        self,
        scope: Scope,
        assigned: Assigned,
        handler: Handler,
        queue: deque[Record],
        received: Received,
        *,
        longest: float,
        shared: bool,
    ) -> None:
        """It lasts `longest` seconds; with `shared` others take from its queue as well."""
        super().__init__(scope, assigned, [], [], handler)
        self.queue = queue
        """Where it takes them from; if others take those away, it stays empty."""
        self.shared = shared
        self._longest = longest
        self._received = received
        self._done: list[int] = []
        self._sent: list[Sent] = []

    def run(self, until: float = inf) -> None:
        """Run records up to the first that fails or is not fresh; none begins after `until`."""
        queue, done, sent = self.queue, self._done, self._sent
        handler, scope, timer = self.handler, self.scope, self.scope.timer
        allowed = handler.sends
        self.thread = get_ident()
        slow: list[float] = []
        count = 0
        start = before = self.since = timer()
        until = min(until, start + self._longest)
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
            if taken is not record:  # another thread was quicker: records without order
                record = self.current = taken
                if record.headers and is_odd(record):
                    self.odd = [record]
                    break
            context = FreshContext(self, record, scope, allowed)
            error = call_fresh(handler, record, context)
            count += 1
            now = timer()
            if now - before > COUNTED_ALONE:
                slow.append(now - before)
            before = now
            if error is not None:  # since when it ran is left: somebody asks how long it took
                self.works.append(context.work)
                self.results.append(error)
                break
            self.since = now
            sends = context._sends  # noqa: SLF001 -- without a call for each
            if sends is None:
                done.append(record[2])
            else:
                sent.append((record[2], sends, record))
            if now >= until:
                break
        self.calls += count
        self.seconds += before - start
        over = self.met_odd or self.odd or self.works or self.cancelled
        self.may_go_on = self.shared and bool(queue) and not over
        self._count(before - start, count, slow)

    def collect(self, report: Report) -> None:
        """Take what is done so far, and was not taken before."""
        number = len(self._done)
        report.done += self._done[:number]
        del self._done[:number]
        number = len(self._sent)
        report.sent += self._sent[:number]
        del self._sent[:number]

    def work_of(self, record: Record) -> Work:
        """A record as one that goes by lanes."""
        received = self._received(record.offset)
        return Work(self.assigned, record, self.handler, record.offset, received)

    def _count(self, seconds: float, quick: int, slow: list[float]) -> None:
        """Count how long calls took: those that took long one by one."""
        times = self.scope.times
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
        """The record as one that goes by lanes."""
        try:
            return self._made
        except AttributeError:
            self._made: Work = self._turn.work_of(self._record)
            return self._made

    _work = work


def is_odd(record: Record) -> bool:
    """Whether a record was written by redrive, for somebody: turns do not run it."""
    return addressee(record.headers) is not None


def call_fresh(handler: Handler, record: Record, context: FreshContext) -> BaseException | None:
    """Call a plain handler for a fresh record; returns what it raised."""
    try:
        if handler.decode is not None:
            record.data = rules.decoded(record, handler)
        returned = handler.call(record, context)
        if returned is not None:
            rules.check_returned(returned, handler.call, acked=False)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return rules.raised(context, error)
    context._open = False  # noqa: SLF001 -- as close() does, without the call
    return None
