"""Records that run at once, in the order in which they were read: without lanes, lots and turns.

Most records of most apps are fresh, have a plain function for a handler, and do not fail. While
nothing else of their partition is under way, the order in which they were read is every order that
an app can have asked for. A record that fails goes the ordinary way, and so do those behind it; and
if one takes long, those behind it are taken away from its thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.envelope import addressee
from redrive.processing import calls
from redrive.processing.context import Context
from redrive.processing.outcomes import Report
from redrive.processing.work import Lane, Lot, Work

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.scope import Scope
    from redrive.record import Record

_LONG: Final = 0.001
"""Seconds. What takes longer is counted by itself, the others together."""


def may_run_at_once(handler: Handler, scope: Scope) -> bool:
    """Whether the records of a handler may: a plain function, and nobody watches each call."""
    special = handler.is_async or handler.batch or handler.ack == "manual" or handler.timeout
    return not special and scope.units is None


class Turn(Lot):
    """A thread's turn at fresh records: works are made only of those that fail."""

    __slots__ = ("failed", "turns")

    def __init__(self, processor: PartitionProcessor, handler: Handler) -> None:
        super().__init__(processor, [], [], handler)
        self.turns = 0
        """How many had theirs, with the one that failed."""
        self.failed: tuple[Work, BaseException] | None = None


class Stretch(Turn):
    """Records of one partition, one after the other as they were read."""

    __slots__ = ("_received", "_todo", "lane", "odd", "report")

    def __init__(
        self,
        processor: PartitionProcessor,
        handler: Handler,
        records: Iterable[Record],
        received: int,
    ) -> None:
        super().__init__(processor, handler)
        self._received = received
        self._todo = deque(records)
        self.report = Report()
        """Of those that are done."""
        self.odd = False
        """Whether it ended at a record that is not fresh."""
        self.lane: Lane | None = None
        """The lane of the record that runs, where those behind it were taken away."""

    def run(self, until: float) -> None:
        """Run them up to the first that fails or is not fresh; none begins after `until`."""
        todo = self._todo
        sent, done = self.report.sent, self.report.done
        processor, handler, received = self.processor, self.handler, self._received
        long: list[float] = []
        start = before = now = self.since
        while todo:
            try:
                # Looked at before it is taken: whoever takes the others away knows which one runs.
                record = self.current = todo[0]
                if record.headers and addressee(record.headers) is not None:
                    self.odd = True
                    break
                todo.popleft()
            except IndexError:
                break  # they were taken away meanwhile
            context = FreshContext(processor, handler, record, received)
            error = call_fresh(handler, record, context)
            if error is not None:
                self.failed = context.work, error
                break
            sends = context._sends  # noqa: SLF001 -- without a call for each
            if sends is None:
                done.append(record[2])
            else:
                sent.append((record[2], sends, record))
            self.since = now = monotonic()
            if now - before > _LONG:
                long.append(now - before)
            before = now
            if now >= until:
                break
        self.turns = len(done) + len(sent) + (self.failed is not None)
        self.seconds = now - start
        self._count(long)

    def _count(self, long: list[float]) -> None:
        """Take note of how long they took: those that took long one by one."""
        times, seconds = self.processor.scope.times, self.seconds or 0.0
        quick = len(self.report.done) + len(self.report.sent) - len(long)
        if times is None:
            return
        for each in long:
            times.add(each)
        if quick:
            times.add((seconds - sum(long)) / quick, quick)

    def take_rest(self) -> list[Record]:
        """Take those that have not begun, from whichever thread: it ends after the one that runs.

        Each step is one of Python's own, which no other thread can come between.
        """
        rest = []
        try:
            while True:
                rest.append(self._todo.pop())
        except IndexError:
            rest.reverse()
            return rest


class FreshContext(Context):
    """A context whose work is made when somebody asks for it: few handlers do."""

    __slots__ = ("_handler", "_made", "_processor", "_received", "_record")

    def __init__(
        self, processor: PartitionProcessor, handler: Handler, record: Record, received: int
    ) -> None:
        self._scope = processor.scope
        self._sends = None
        self._open = True
        self._processor = processor
        self._handler = handler
        self._record = record
        self._received = received

    @property
    def work(self) -> Work:
        """The record as one that goes the ordinary way."""
        try:
            return self._made
        except AttributeError:
            record = self._record
            self._made: Work = Work(
                self._processor, record, self._handler, record.offset, self._received
            )
            return self._made

    _work = work

    @property
    def _allowed(self) -> tuple[str, ...] | None:
        return self._handler.sends


def call_fresh(handler: Handler, record: Record, context: FreshContext) -> BaseException | None:
    """Call a plain handler for a fresh record; gives what it raised."""
    try:
        if handler.decode is not None:
            record.data = calls.decoded(context.work)
        returned = handler.call(record, context)
        if returned is not None:
            calls.check_returned(returned, handler.call, acked=False)
    except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
        return calls.raised(context, error)
    context._open = False  # noqa: SLF001 -- as close() does, without the call
    return None
