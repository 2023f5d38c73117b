"""Fresh: records that need no lanes, because nothing of them is to be put in order or looked up.

They wait in one queue, as they were read. Where there is an order, one turn at a time takes them;
without one, every free thread has a turn and takes the next one by itself: if lots were handed out,
a hundred threads would wait for each other at the dispatcher. A record that fails, or is not fresh
after all, goes by lanes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence, Sized
from math import inf
from typing import TYPE_CHECKING

from redrive.processing.calls.lots import Lot, taken
from redrive.processing.calls.scope import Scope
from redrive.processing.calls.turns import Turn, is_odd, is_plain
from redrive.processing.intake.reception import Reception
from redrive.processing.order.given_back import GivenBack
from redrive.processing.order.lanes import Lanes
from redrive.processing.outcomes.report import Report
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import Assigned, takes_long
from redrive.tuning import TURN_ORDERED, TURN_SHARED

if TYPE_CHECKING:
    from redrive.record import Record


class Fresh:
    """The fresh records of one topic-partition that wait outside of its lanes."""

    def __init__(
        self,
        scope: Scope,
        assigned: Assigned,
        *,
        tracker: AckTracker,
        lanes: Lanes,
        given_back: GivenBack,
        reception: Reception,
        blocked: Sized = (),
    ) -> None:
        """While keys are `blocked`, all records go by lanes: some may have to wait for others."""
        self._scope = scope
        self._assigned = assigned
        self._tracker = tracker
        self._lanes = lanes
        self._given_back = given_back
        self._reception = reception
        self._blocked = blocked
        handler = scope.app.handlers.get(assigned.place.topic)
        plain = handler is not None and assigned.delay is None and is_plain(handler, scope.app)
        self._handler = handler if plain else None
        """The handler, if turns may run its records."""
        self.queue: deque[Record] = deque()
        self._read: list[tuple[float, int]] = []
        """From which offset on records were read at which time; only added to, or replaced."""
        self._turn: Turn | None = None
        """The one under way, where there is an order."""
        self._since = 0.0
        """When the first of the queue began to wait for its turn."""

    # Records come in

    def add(self, records: Sequence[Record], now: int, lots: set[Lot]) -> bool:
        """Have records wait here; False: they have to go by lanes. `lots` are those that run."""
        if not records:
            return True
        if not self._may_wait(lots):
            return False
        if not self.queue:
            self._since = self._scope.timer()
        self._note_read(records[0].offset, now)
        self.queue.extend(records)
        return True

    def spread(self, now: int, report: Report) -> None:
        """Let all that waits in order go by lanes.

        So does what the turn under way has not begun: whatever comes next may go by lanes, too.
        """
        if self.is_shared:
            return
        rest, turn = self._take_all(), self._turn
        if turn is not None and turn.current is not None and not turn.lanes:
            turn.collect(report)  # before those behind them in their lanes can be done
            lane = self._lanes.occupy(turn.current)
            turn.lanes = [] if lane is None else [lane]
        if rest:
            self._reception.take_in(rest, now, report)

    def shut(self, now: int, report: Report) -> None:
        """Let all that waits go by lanes, which are shut: there is an outage."""
        if self.is_shared:
            self._reception.take_in(self._take_all(), now, report)
        else:
            self.spread(now, report)

    def _note_read(self, offset: int, now: int) -> None:
        read = self._read
        if read and read[-1][1] == now and read[-1][0] <= offset:
            return
        # Reading may have gone back; and nobody asks for what is complete.
        first = max(0, bisect_right(read, (self._tracker.prefix, inf)) - 1)
        last = bisect_right(read, (offset, -inf))
        if last == len(read) and 2 * first < last:
            read.append((offset, now))  # without a copy of all that a long call keeps here
            return
        self._read = [*read[first:last], (offset, now)]

    def _received(self, offset: int) -> int:
        """When the record with that offset was read."""
        read = self._read
        return read[max(0, bisect_right(read, (offset, inf)) - 1)][1]

    # Turns

    @property
    def is_shared(self) -> bool:
        """Whether every free thread may take the next one by itself: there is no order."""
        return self._scope.threads > 1 and self._scope.app.ordering == "unordered"

    def next(self, lots: set[Lot]) -> Turn | None:
        """The next turn, if somebody may have one while these lots run."""
        shared = self.is_shared
        if not self.queue or self._handler is None:
            return None
        if not shared and (lots or self._lanes.sleeping):
            return None
        turn = Turn(
            self._scope,
            self._assigned,
            self._handler,
            self.queue,
            self._received,
            longest=TURN_SHARED if shared else TURN_ORDERED,
            shared=shared,
        )
        if not shared:
            self._turn = turn
        return turn

    def ended(self, lot: Lot) -> None:
        """Note that a lot, or a turn, has ended."""
        if lot is not self._turn:
            return
        self._turn = None
        self._since = self._scope.timer()
        for work in lot.works:  # one that failed is as any other: in its lane, others wait for it
            work.lane = self._lanes.occupy(work.record)
            lot.lanes = [] if work.lane is None else [work.lane]

    def look_after(self, lot: Lot, now: int, report: Report, lots: set[Lot]) -> None:
        """Let those go by lanes that cannot wait here any more, after a lot or a turn has ended."""
        if self.is_shared:
            self._reception.take_in([*lot.odd, *_taken_odd(self.queue)], now, report)
        elif lot.met_odd or not self._may_wait(lots):
            self.spread(now, report)

    def cut(self) -> None:
        """Turns under way end after the record that runs now."""
        rest = self._take_all()
        self.queue.extend(rest)  # it is another queue by now

    def look_for_slow(self, now: int) -> Report | None:
        """If a record takes long, let those go on that need not wait for it; None: none does."""
        if self.is_shared or self._scope.threads == 1:
            return None  # one thread alone cannot go on with the others meanwhile
        if self._turn is None and not self.queue:
            return None
        since = self._since if self._turn is None else self._turn.since
        if not takes_long(since, self._scope.timer()):
            return None
        report = Report()
        self.spread(now, report)
        return report

    def _take_all(self) -> list[Record]:
        """Take all that wait: turns under way find nothing more to take."""
        queue, self.queue = self.queue, deque()
        return taken(queue)

    def _may_wait(self, lots: set[Lot]) -> bool:
        """Whether records may wait here: none was given back, and lanes would not be quicker.

        In order they would be if handlers are slow, a record waits in place, or a call takes long.
        But not if one thread alone runs all.
        """
        held_up = self._given_back.counts or self._blocked or self._lanes.shut
        if self._handler is None or held_up:
            return False
        if self.is_shared:
            return True
        if not (self._lanes.quick or self._scope.threads == 1) or self._lanes.sleeping:
            return False
        now = self._scope.timer() if lots else 0.0
        return not any(takes_long(lot.since, now) for lot in lots)


def _taken_odd(queue: deque[Record]) -> list[Record]:
    """Those at the head of a shared queue that are not fresh: no turn takes them."""
    odd: list[Record] = []
    try:
        while is_odd(queue[0]):
            odd.append(queue.popleft())
    except IndexError:
        pass  # others have taken the last ones
    return odd
