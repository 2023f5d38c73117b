"""Pool: fresh records without order, of which every free thread takes the next one by itself.

If lots were handed out, a hundred threads would wait for each other at the dispatcher. What a
thread takes out of a deque, or puts into one, is one step of Python's own, which no other thread
can come between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from time import monotonic
from typing import TYPE_CHECKING

from redrive.envelope import addressee
from redrive.processing.at_once import FreshContext, Turn, call_fresh
from redrive.processing.outcomes import Report, Sent

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.processing.processor import PartitionProcessor
    from redrive.record import Record


class Pool:
    """The records of one topic-partition that any thread may take, and what came of them."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Record, int]] = deque()
        """Each with the time at which it was received."""
        self.done: deque[int] = deque()
        self.sent: deque[Sent] = deque()
        self.odd: deque[Record] = deque()
        """Those that are not fresh: they go the ordinary way."""

    def __len__(self) -> int:
        return len(self.waiting)

    def extend(self, records: Iterable[Record], now: int) -> None:
        """Have more of them wait."""
        self.waiting.extend(zip(records, repeat(now)))

    def collect(self) -> Report:
        """Take what is done; one at a time may do so."""
        report = Report()
        report.done += [self.done.popleft() for _ in range(len(self.done))]
        report.sent += [self.sent.popleft() for _ in range(len(self.sent))]
        return report

    def take_odd(self) -> list[Record]:
        """Take those that have to go the ordinary way."""
        return [self.odd.popleft() for _ in range(len(self.odd))]


class Share(Turn):
    """A turn at a pool: record after record, until it is empty or the turn is over."""

    __slots__ = ("_pool",)

    def __init__(self, processor: PartitionProcessor, handler: Handler, pool: Pool) -> None:
        super().__init__(processor, handler)
        self._pool = pool

    @property
    def may_go_on(self) -> bool:
        """Whether there is more to take, and nothing that waits for its end."""
        pool = self._pool
        return bool(pool.waiting) and not (pool.odd or self.cancelled or self.failed)

    def run(self, until: float) -> None:
        """Run them up to the first that fails; none begins after `until`."""
        pool, processor, handler = self._pool, self.processor, self.handler
        scope, took = processor.scope, list[float]()
        start = began = monotonic()
        while began < until and not self.cancelled:
            try:
                record, received = pool.waiting.popleft()
            except IndexError:
                break  # others have taken the last ones
            if record.headers and addressee(record.headers) is not None:
                pool.odd.append(record)
                continue
            context = FreshContext(processor, handler, record, received)
            self.turns += 1
            self.current, self.since = record, began
            error = call_fresh(handler, record, context)
            now = monotonic()
            took.append(now - began)
            began = now
            if error is not None:
                self.failed = context.work, error
                break
            sends = context._sends  # noqa: SLF001 -- without a call for each
            if sends is None:
                pool.done.append(record.offset)
            else:
                pool.sent.append((record.offset, sends, record))
        self.seconds = (self.seconds or 0.0) + began - start
        if scope.times is not None:
            scope.times.add_all(took)
