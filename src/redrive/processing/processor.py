"""PartitionProcessor: ordering and policy, applied to the records of one topic-partition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from redrive import decisions
from redrive.errors import HandlerTimeout, PublishError
from redrive.guarantees import GUARANTEES
from redrive.processing import outcomes
from redrive.processing.fresh import Fresh
from redrive.processing.given_back import GivenBack
from redrive.processing.holding import Holding
from redrive.processing.judged import Judged
from redrive.processing.lanes import Lanes
from redrive.processing.lots import Lot
from redrive.processing.outcomes import Outcome, Report, Sent
from redrive.processing.reception import Reception
from redrive.processing.unacked import Unacked
from redrive.processing.verdicts import Verdicts
from redrive.processing.work import (
    BEHIND,
    DUPLICATE,
    Lane,
    Pending,
    Result,
    TakenCareOf,
    Work,
    takes_long,
)
from redrive.record import Record, TopicPartition

if TYPE_CHECKING:
    from redrive.processing.acks import AckTracker
    from redrive.processing.context import Context
    from redrive.processing.scope import Scope

_offset: Final = itemgetter(2)


class PartitionProcessor:
    """A state machine: records are offered, lots taken, results completed, outcomes settled.

    One per assignment of a partition. `delay` says that the partition is one of a delay topic.
    Not for use from several threads at once: the dispatcher sees to that.
    """

    def __init__(
        self,
        scope: Scope,
        partition: TopicPartition,
        tracker: AckTracker,
        *,
        delay: int | None = None,
    ) -> None:
        self.scope = scope
        self.app = scope.app
        self.partition = partition
        self.delay = delay
        self.tracker = tracker
        self.closed = False
        together = GUARANTEES[self.app.delivery].database
        self._verdicts = Verdicts(scope)
        self._lanes = Lanes(
            self.app.ordering, self.app.concurrency, scope.long_lanes, together=together
        )
        self._holding = Holding()
        self._given_back = GivenBack(tracker, self._lanes)
        self._reception = Reception(
            self, self._verdicts, self._lanes, self._holding, self._given_back
        )
        self._detained: set[Work] = set()
        self._lots: set[Lot] = set()
        self._unacked = Unacked()
        self.fresh = Fresh(self, self._lanes, self._reception, self._given_back, self._lots)

    # Records come in

    def offer(self, records: Sequence[Record], now: int) -> Report:
        """Take in records that were read, in the order of their offsets."""
        report = Report()
        if self.goes_back:
            return report  # they will be read again, after the one that was given back
        wanted = self.tracker.receive(list(map(_offset, records)))
        if len(wanted) != len(records):
            keep = set(wanted)
            records = [record for record in records if record.offset in keep]
        if not self.fresh.take_in(records, now):
            self.fresh.spread(now, report)
            self._reception.take_in(records, now, report)
        return report

    # Time passes

    def due(self, now: int) -> Report:
        """Make ready what has waited long enough; some records need no handler for what is next."""
        report = Report()
        steady = self.scope.steady(now)
        self._lanes.wake(steady)
        for work, due in self._holding.take(now):
            self._reception.release(work, due, now, report)
        for work in self._unacked.take_overdue(steady):
            error = HandlerTimeout(
                f"{work.record.place} was not acknowledged within its handler's time-out"
            )
            self._settle_ack(work, error, now, report)
        return report

    def next_due(self) -> int | None:
        """When `due` has something to do; None: not by itself."""
        held = self._holding.next_due()
        waits = [
            self.scope.on_the_clock(time)
            for time in (self._lanes.next_wake(), self._unacked.next_end())
            if time is not None
        ]
        return min(waits if held is None else [held, *waits], default=None)

    # Work goes out

    @property
    def ready(self) -> int:
        """How many lots `next` has to give, about; 0: none."""
        return self._lanes.ready or self.fresh.ready

    @property
    def quick(self) -> bool:
        """Whether its handlers take so little time that a few threads are enough."""
        return self._lanes.quick

    @property
    def under_way(self) -> Collection[Lot]:
        """The lots that run."""
        return self._lots

    @property
    def running(self) -> int:
        """How many lots are under way."""
        return len(self._lots)

    @property
    def brisk(self) -> int:
        """How many of them have not been with one record for long."""
        return sum(not takes_long(lot.since) for lot in self._lots)

    @property
    def unacked(self) -> int:
        """How many records wait for a manual acknowledgement."""
        return len(self._unacked)

    @property
    def held(self) -> int:
        """How many records of a delay topic are held here until they are due."""
        return len(self._holding)

    def next_held(self) -> int | None:
        """When the first record that is held here is due."""
        return self._holding.next_due()

    def next(self) -> Lot | None:
        """The next lot that may run; every lot must be completed."""
        works, lanes = self._lanes.take()
        if not works:
            return self.fresh.next()
        lot = Lot(self, works, lanes)
        self._lots.add(lot)
        if self._detained:
            self._detained.difference_update(works)
        return lot

    # Results come back

    def collect(self) -> Report:
        """Take what is done of lots that are still under way."""
        report = Report()
        if not self.closed:
            for lot in self._lots:
                lot.collect(report)
        return report

    def look_for_slow(self, now: int) -> Report | None:
        """Let those go on that wait for a record that takes long, and need not; None: none does."""
        report = self.fresh.look_for_slow(now)
        for lot in self._lots:
            # With one lane, all have to wait for it.
            if len(lot.lanes) != 1 and 0 < len(lot.todo) < len(lot.works) and takes_long(lot.since):
                report = Report() if report is None else report
                self._cut(lot, report)
        if report is None and self.quick and self.ready and self.brisk < len(self._lots):
            return Report()  # nothing has come of it, but others may begin
        return report

    def _cut(self, lot: Lot, report: Report) -> None:
        """Take those away from a lot that have not begun; they wait where they were."""
        rest = lot.take_todo()
        # Only now: of those that had begun but for one, the results are there.
        lot.collect(report)
        self._lanes.put_back(rest)
        under_way = {work.lane for work in lot.works[lot.reported :]}
        for lane in lot.lanes:
            if lane not in under_way:
                self._lanes.free(lane)
        lot.lanes = [lane for lane in lot.lanes if lane in under_way]

    def end(self, lot: Lot, now: int) -> Report:
        """Take what came of a lot; if the partition was taken away, nothing of it counts."""
        self._lots.discard(lot)
        return Report() if self.closed else lot.end(now)

    def complete(self, lot: Lot, now: int) -> Report:
        """Take the rest of a lot's results; records without one go back to their place."""
        report = Report()
        self._complete(lot, now, report)
        self.fresh.look_at_pace(now, report)
        return report

    def _complete(self, lot: Lot, now: int, report: Report) -> None:
        start, lot.reported = lot.reported, len(lot.results)
        works, results = lot.works[start : lot.reported], lot.results[start:]
        holds: dict[Lane | None, int] = {}
        again: list[Work] = []
        behind: list[Work] = []
        slow = lot.recovering
        for work, result in zip(works, results, strict=True):
            if result is None and not slow:
                report.done.append(work.offset)
            elif type(result) is list and not slow:
                report.sent.append((work.offset, result, work))
            elif result is BEHIND:
                behind.append(work)
            else:
                wait = self._result(work, result, now, report)
                if wait is not None:
                    again.append(work)
                    holds[work.lane] = max(wait, holds.get(work.lane, 0))
                elif work in self._unacked:
                    lot.let_go(work.lane)  # its key waits for the acknowledgement, not for the lot
        if lot.seconds is not None and lot.reported and not lot.recovering:
            self._lanes.note_pace(lot.seconds, lot.reported)
        if report.given_back:
            self.fresh.spread(now, report)  # they stand behind it, and go back with it
            self._given_back.take(report)
        self._put_back(lot, again, behind, holds)

    def judge(self, work: Work, result: Result, now: int, judged: Judged) -> None:
        """Decide about one result of a lot, without acting on it.

        Nothing changes but the record's own count and error, which `judged.undo()` takes back. No
        lock is needed: the record is the lot's.
        """
        judged.remember(work)
        wait = self._result(work, result, now, judged.report)
        if wait is not None:
            judged.waits[work] = wait

    def finish(self, lot: Lot, judged: Judged) -> None:
        """End a lot whose results were judged: put back what has no outcome, free its lanes."""
        self._lots.discard(lot)
        if self.closed:
            return
        self._given_back.take(judged.report)
        rest = self._given_back.not_behind(judged.unfinished(lot))
        holds: dict[Lane, int] = {}
        for work in rest:
            until = judged.waits.get(work)
            if work.lane is None:
                self._lanes.put_back([work], until=until)
            elif until is not None:
                holds[work.lane] = max(until, holds.get(work.lane, 0))
        self._lanes.put_back([work for work in rest if work.lane is not None])
        self._detained |= judged.detained
        for lane in lot.lanes:
            self._lanes.free(lane, until=holds.get(lane))

    def acknowledge(self, work: Work, context: Context, result: Result, now: int) -> Report:
        """Take a manual acknowledgement; it may come before its handler returns."""
        report = Report()
        if self.closed or work.awaited is not context:
            return report  # too late: that call has timed out, or was heard before
        if work in self._unacked:
            self._unacked.forget(work)
            self._settle_ack(work, result, now, report)
        else:
            work.awaited = None
            self._unacked.said_early(work, result)
        return report

    def settle(self, offsets: Sequence[int]) -> None:
        """These are complete: what they wrote is durable."""
        self.tracker.complete(offsets)

    def forget(self, buried: Sequence[Outcome]) -> bool:
        """Forget the ids of records that ended outside a unit of work; gives whether it is done."""
        units = self.scope.units
        if units is not None:
            units.forget([each.envelope for each in buried if each.envelope is not None])
        return True

    @property
    def goes_back(self) -> bool:
        """Whether reading has to go back: until then nothing is taken in."""
        return self._given_back.goes_back

    def take_seek(self) -> int | None:
        """Where reading has to go back to, if a record was given back; asked once, then done."""
        return self._given_back.take_seek()

    def stop_waiting(self, now: int) -> Report:
        """Park what waits in place, where its policy has a delay topic for it."""
        report = Report()
        for work in self._lanes.sleepers():
            if work.ending is not None or work.envelope is None or work in self._detained:
                continue
            decision = work.handler.retry.park_instead(work.envelope, now)
            if decision is not None:
                self._lanes.drop(work)
                report.outcomes.append(
                    outcomes.park(self.app, self._verdicts.subject(work), decision, None)
                )
        return report

    def bury(self, record: Record, reason: str, error: BaseException, now: int) -> Report:
        """End a record without calling anybody: it was proven to be deadly."""
        self.tracker.receive([record.offset])
        return self._reception.bury(record, decisions.Bury(reason), error, now)

    def refused(self, sent: Sent, error: PublishError, now: int) -> Outcome:
        """What becomes of a record that is done, but whose messages their topic does not take.

        Nobody is called. No lock is needed: the record is nobody's any more.
        """
        offset, _, subject = sent
        if isinstance(subject, Record):
            subject = Work(self, subject, self.app.handlers[subject.topic], offset, now)
        subject.ending = None  # also where it was its recovery that had done it
        report = Report()
        self._verdicts.failed(subject, error, now, report)
        return report.outcomes[0]

    def cut_lots(self) -> None:
        """Lots under way end after the record that runs now."""
        for lot in self._lots:
            lot.cancelled = True
        self.fresh.cut()

    def close(self) -> None:
        """The partition was taken away: nothing new begins, and late results do not count."""
        if not self.closed:
            self._lanes.close()
        self.closed = True
        self.cut_lots()

    def _put_back(
        self, lot: Lot, again: list[Work], behind: list[Work], holds: dict[Lane | None, int]
    ) -> None:
        for work in again:
            if work.lane is None:
                self._lanes.put_back([work], until=holds[None])
        rest = self._given_back.not_behind([*behind, *lot.works[lot.reported :]])
        self._lanes.put_back([*(work for work in again if work.lane is not None), *rest])
        for lane in lot.lanes:
            self._lanes.free(lane, until=holds.get(lane))

    def _settle_ack(self, work: Work, result: Result, now: int, report: Report) -> None:
        wait = self._result(work, result, now, report)
        self._given_back.take(report)
        if wait is not None:
            self._lanes.put_back([work], until=wait)
        if work.lane is not None:
            self._lanes.free(work.lane, until=wait)

    def _result(self, work: Work, result: Result, now: int, report: Report) -> int | None:
        """Act on one result; returns the steady time until which the record waits for a call."""
        result = self._unacked.first_word(work, result)
        if isinstance(result, Pending):
            self._unacked.expect(work, self.scope.steady(now))
            return None
        work.awaited = None
        if isinstance(result, BaseException):
            return self._verdicts.failed(work, result, now, report)
        if result is DUPLICATE:
            report.outcomes.append(Outcome("duplicate", work.offset, work.record))
        elif work.ending is not None and not isinstance(result, TakenCareOf):
            sends = result if isinstance(result, list) else ()
            self._verdicts.end(work, work.ending.decision, work.ending.error, report, sends)
        elif isinstance(result, list):
            report.sent.append((work.offset, result, work))
        else:
            report.done.append(work.offset)
        return None
