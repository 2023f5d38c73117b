"""Fresh: records that need no lanes, because nothing of them is to be put in order or looked up.

They wait in one queue, as they were read. Where there is an order, one turn at a time takes them;
without one, every free thread has a turn and takes the next one by itself: if lots were handed out,
a hundred threads would wait for each other at the dispatcher. A record that fails, or is not fresh
after all, goes the ordinary way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from redrive.processing.lots import Lot
from redrive.processing.outcomes import Report
from redrive.processing.turns import Turn, is_odd, is_plain
from redrive.processing.work import Work, takes_long
from redrive.tuning import TURN_ORDERED, TURN_SHARED

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.processing.given_back import GivenBack
    from redrive.processing.lanes import Lanes
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.reception import Reception
    from redrive.record import Record


class Fresh:
    """The fresh records of one topic-partition that wait outside of its lanes."""

    def __init__(
        self,
        processor: PartitionProcessor,
        lanes: Lanes,
        reception: Reception,
        given_back: GivenBack,
        lots: set[Lot],
    ) -> None:
        self.processor = processor
        self._lanes = lanes
        self._reception = reception
        self._given_back = given_back
        self._lots = lots
        self._queue: deque[Record] = deque()
        self._read: list[tuple[float, int]] = []
        """From which offset on records were read at which time; only added to, or replaced."""
        self._turn: Turn | None = None
        """The one under way, where there is an order."""
        self._since = 0.0
        """When the first of the queue began to wait for its turn."""

    # Records come in

    def take_in(self, records: Sequence[Record], now: int) -> bool:
        """Have records wait here; False: they have to go by lanes."""
        if not records:
            return True
        if not (self._may_share() if self.is_shared else self._goes_straight()):
            return False
        if not self._queue:
            self._since = monotonic()
        self._note_read(records[0].offset, now)
        self._queue.extend(records)
        return True

    def spread(self, now: int, report: Report) -> None:
        """Let all that waits in order go by lanes.

        So does what the turn under way has not begun: whatever comes next may go by lanes, too.
        """
        if self.is_shared:
            return
        rest, turn = self._take_all(), self._turn
        if turn is not None and turn.current is not None and not turn.broken_up:
            turn.broken_up = True
            turn.collect(report)  # before those behind them in their lanes can be done
            turn.lane = self._lanes.occupy(turn.current)
        if rest:
            self._reception.take_in(rest, now, report)

    def received(self, offset: int) -> int:
        """When the record with that offset was read."""
        read = self._read
        return read[max(0, bisect_right(read, (offset, inf)) - 1)][1]

    def _note_read(self, offset: int, now: int) -> None:
        read = self._read
        if read and read[-1][1] == now and read[-1][0] <= offset:
            return
        # Reading may have gone back; and nobody asks for what is complete.
        first = max(0, bisect_right(read, (self.processor.tracker.prefix, inf)) - 1)
        last = bisect_right(read, (offset, -inf))
        if last == len(read) and 2 * first < last:
            read.append((offset, now))  # without a copy of all that a long call keeps here
            return
        self._read = [*read[first:last], (offset, now)]

    # Turns

    @property
    def is_shared(self) -> bool:
        """Whether every free thread may take the next one by itself: there is no order."""
        processor = self.processor
        return processor.scope.threads > 1 and processor.app.ordering == "unordered"

    @property
    def turn_seconds(self) -> float:
        """How long a turn lasts, before its thread looks for other work."""
        return TURN_SHARED if self.is_shared else TURN_ORDERED

    @property
    def ready(self) -> int:
        """How many turns `next` has to give; 0: none."""
        if self.is_shared:
            return len(self._queue)
        return 1 if self._queue and not self._lots else 0

    @property
    def alone(self) -> bool:
        """Whether nothing of the partition is ready but what waits here."""
        return not self._lanes.ready

    def next(self) -> Turn | None:
        """The next turn, if somebody may have one."""
        handler = self._plain_handler() if self._queue else None
        if handler is None:
            return None
        if not self.is_shared and (self._lots or not self._lanes.empty_handed):
            return None
        turn = Turn(self, handler, self._queue)
        if not self.is_shared:
            self._turn = turn
        self._lots.add(turn)
        return turn

    def end(self, turn: Turn, now: int) -> Report:
        """Take what came of a turn."""
        if turn is self._turn:
            self._turn = None
            self._since = monotonic()
        if turn.seconds is not None and turn.calls:
            self._lanes.note_pace(turn.seconds, turn.calls)
        report = Report()
        turn.collect(report)
        if self.is_shared:
            self._reception.take_in(_taken_odd(turn.queue), now, report)
            if turn.queue is not self._queue:  # it was cut, and may have put one back since
                self._queue.extend(_taken(turn.queue))
        if turn.failed is not None:
            self._failed(report, *turn.failed, now)
        elif not self.is_shared:
            self._end_well(turn, now, report)
        return report

    def cut(self) -> None:
        """Turns under way end after the record that runs now."""
        rest = self._take_all()
        self._queue.extend(rest)

    # What is not quick, or fails

    def look_for_slow(self, now: int) -> Report | None:
        """If a record takes long, let those go on that need not wait for it; None: none does."""
        if self.is_shared or self.processor.scope.threads == 1 or not self._too_slow:
            return None  # one thread alone cannot go on with the others meanwhile
        report = Report()
        self.spread(now, report)
        return report

    def look_at_pace(self, now: int, report: Report) -> None:
        """Let those that wait in order go by lanes, if they should not wait so any more."""
        if self._queue and not self.is_shared and not self._goes_straight():
            self.spread(now, report)

    @property
    def _too_slow(self) -> bool:
        """Whether one that runs, or the first that waits, takes long."""
        if self._turn is None and not self._queue:
            return False
        return takes_long(self._since if self._turn is None else self._turn.since)

    def _end_well(self, turn: Turn, now: int, report: Report) -> None:
        if turn.met_odd or not self._goes_straight():
            self.spread(now, report)
        if turn.lane is not None:
            self._lanes.free(turn.lane)

    def _failed(self, report: Report, work: Work, error: BaseException, now: int) -> None:
        """Take the failure of a record: from here on it is as any other.

        If it has to wait in its lane, those behind it go there, too.
        """
        work.lane = self._lanes.occupy(work.record)
        lot = Lot(self.processor, [work], [] if work.lane is None else [work.lane])
        lot.results.append(error)
        report.outcomes += lot.end(now).outcomes

    def _take_all(self) -> list[Record]:
        """Take all that wait: turns under way find nothing more to take."""
        queue, self._queue = self._queue, deque()
        return _taken(queue)

    # Which records these are

    def _plain_handler(self) -> Handler | None:
        """The handler, if turns may run its records."""
        processor = self.processor
        if processor.delay is not None:
            return None
        handler = processor.app.handlers.get(processor.partition.topic)
        plain = handler is not None and is_plain(handler, processor.scope)
        return handler if plain else None

    def _may_share(self) -> bool:
        """Whether threads may take them by themselves: none of them was given back before."""
        return not self._given_back and self._plain_handler() is not None

    def _goes_straight(self) -> bool:
        """Whether they wait for their turn without lanes: they are quick, none waits or hangs.

        Or one thread alone runs them: no lanes would be quicker.
        """
        lanes, processor = self._lanes, self.processor
        quick = lanes.quick or processor.scope.threads == 1
        if not (quick and lanes.awake) or self._given_back:
            return False
        return processor.brisk == processor.running and self._plain_handler() is not None


def _taken(queue: deque[Record]) -> list[Record]:
    """Take all out of a queue that others take from meanwhile."""
    rest: list[Record] = []
    try:
        while True:
            rest.append(queue.pop())
    except IndexError:
        rest.reverse()
        return rest


def _taken_odd(queue: deque[Record]) -> list[Record]:
    """Those at the head of a shared queue that are not fresh: no turn takes them."""
    odd: list[Record] = []
    try:
        while is_odd(queue[0]):
            odd.append(queue.popleft())
    except IndexError:
        pass  # others have taken the last ones
    return odd
