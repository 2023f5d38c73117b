"""Fresh: records that need no lanes, because nothing of them is to be put in order or looked up.

They run at once in the thread that read them, straight in the order in which they were read, or are
taken from a pool by whichever thread is free. One that fails, or is not fresh after all, goes the
ordinary way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive.processing.at_once import Stretch, Turn, may_run_at_once
from redrive.processing.outcomes import Report
from redrive.processing.pool import Pool, Share
from redrive.processing.straight import Straight
from redrive.processing.work import Lot, Work

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
        self._processor = processor
        self._lanes = lanes
        self._reception = reception
        self._given_back = given_back
        self._lots = lots
        self._straight = Straight()
        self._pool = Pool()

    # Records come in

    def take_in(self, records: Sequence[Record], now: int) -> bool:
        """Have records wait here; False: they have to go by lanes."""
        if self._needs_no_order():
            self._pool.extend(records, now)
        elif self._goes_straight():
            self._straight.extend(records, now)
        else:
            return False
        return True

    def at_once(self, records: Sequence[Record], now: int) -> Stretch | None:
        """Take records in that run in the order in which they were read; None: not these, now."""
        processor, handler = self._processor, self._plain_handler()
        waiting = self._straight or self._pool or not self._lanes.empty_handed
        busy = self._lots or processor.unacked or waiting
        if handler is None or busy or self._given_back or processor.goes_back or processor.closed:
            return None
        offsets = [record.offset for record in records]
        wanted = processor.tracker.receive(offsets)
        if len(wanted) == len(offsets):
            return Stretch(processor, handler, records, now)
        processor.tracker.give_back(wanted, processor.epoch)  # some shall not run
        return None

    def ran_at_once(self, stretch: Stretch, records: Sequence[Record], now: int) -> Report:
        """Take what came of them; those that had no turn will be offered."""
        left = [each.offset for each in records[stretch.turns :]]
        self._processor.tracker.give_back(left, self._processor.epoch)
        if stretch.failed is not None:
            self._failed(stretch.report, *stretch.failed, now)
        return stretch.report

    def spread(self, now: int, report: Report) -> None:
        """Let all that waits in the order in which it was read go by lanes."""
        if self._straight:
            self._reception.take_in(self._straight.take_all(), now, report)

    # Turns

    @property
    def ready(self) -> int:
        """How many turns `next` has to give; 0: none."""
        return 1 if self._straight and not self._lots else len(self._pool)

    @property
    def alone(self) -> bool:
        """Whether nothing of the partition is ready but what waits here."""
        return not self._lanes.ready

    def next(self) -> Turn | None:
        """The next turn, if somebody may have one."""
        handler = self._plain_handler()
        if handler is None:
            return None
        turn: Turn
        if self._pool:
            turn = Share(self._processor, handler, self._pool)
        elif self._straight and not self._lots and self._lanes.empty_handed:
            turn = self._straight.begin(self._processor, handler)
        else:
            return None
        self._lots.add(turn)
        return turn

    def end(self, turn: Turn, now: int) -> Report:
        """Take what came of a turn."""
        self._lots.discard(turn)
        if isinstance(turn, Stretch):
            self._straight.end(turn)
        if turn.seconds is not None and turn.turns:
            self._lanes.note_pace(turn.seconds, turn.turns)
        report = turn.report if isinstance(turn, Stretch) else self._pool.collect()
        if turn.failed is not None:
            self._failed(report, *turn.failed, now)
        elif isinstance(turn, Stretch):
            self._end_well(turn, now, report)
        if self._pool.odd:
            self._reception.take_in(self._pool.take_odd(), now, report)
        return report

    def collect(self) -> Report:
        """Take what is done of those that threads have taken by themselves."""
        return Report() if self._processor.closed else self._pool.collect()

    def cut(self) -> None:
        """Turns under way end after the record that runs now."""
        self._straight.cut()

    # What is not quick, or fails

    def look_for_slow(self, now: int) -> Report | None:
        """If a record takes long, let those go on that need not wait for it; None: none does."""
        straight = self._straight
        if not straight.too_slow:
            return None
        straight.cut()
        stretch = straight.stretch
        if stretch is not None and stretch.current is not None:
            stretch.lane = self._lanes.occupy(stretch.current)
        report = Report()
        self.spread(now, report)
        return report

    def look_at_pace(self, now: int, report: Report) -> None:
        """Let those that wait straight go by lanes, if they should not wait so any more."""
        if self._straight and not self._goes_straight():
            self.spread(now, report)

    def _end_well(self, stretch: Stretch, now: int, report: Report) -> None:
        if stretch.odd or not self._goes_straight():
            self.spread(now, report)
        if stretch.lane is not None:
            self._lanes.free(stretch.lane)

    def _failed(self, report: Report, work: Work, error: BaseException, now: int) -> None:
        """Take the failure of a record that ran at once: from here on it is as any other."""
        work.lane = self._lanes.occupy(work.record)
        self.spread(now, report)  # those that have to stay behind it do
        lot = Lot(self._processor, [work], [] if work.lane is None else [work.lane])
        failed = self._processor.complete(lot, [error], now)
        report.outcomes += failed.outcomes

    # Which records these are

    def _plain_handler(self) -> Handler | None:
        """The handler, if its records may run in the order in which they were read."""
        processor = self._processor
        if processor.delay is not None:
            return None
        handler = processor.app.handlers.get(processor.partition.topic)
        plain = handler is not None and may_run_at_once(handler, processor.scope)
        return handler if plain else None

    def _needs_no_order(self) -> bool:
        """Whether every free thread may take the next one by itself."""
        processor = self._processor
        if not processor.scope.many_threads or processor.app.ordering != "unordered":
            return False
        return not self._given_back and self._plain_handler() is not None

    def _goes_straight(self) -> bool:
        """Whether they wait for their turn without lanes: they are quick, none waits."""
        lanes = self._lanes
        return lanes.quick and lanes.awake and not self._given_back and bool(self._plain_handler())
