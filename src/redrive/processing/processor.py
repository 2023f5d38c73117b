"""PartitionProcessor: ordering and policy, applied to the records of one topic-partition."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from redrive import decisions
from redrive.errors import HandlerTimeout, PublishError
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.intake.delay_queue import DelayQueue
from redrive.processing.intake.fresh import Fresh
from redrive.processing.intake.reception import Reception
from redrive.processing.order.given_back import GivenBack
from redrive.processing.order.key_gate import KeyGate, Station
from redrive.processing.order.lanes import Lanes
from redrive.processing.order.unacked import Unacked
from redrive.processing.outcomes.judged import Judged
from redrive.processing.outcomes.report import Outcome, Report, Sent
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import BEHIND, PENDING, Assigned, Lane, Result, Work, takes_long
from redrive.record import Record, TopicPartition
from redrive.tuning import GUARD_PROBE_LONGEST

_offset: Final = itemgetter(2)
_LATER: Final = int(1000 * GUARD_PROBE_LONGEST)


class PartitionProcessor:
    """A state machine: records are offered, lots taken and ended, outcomes settled.

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
        gate: KeyGate | None = None,
    ) -> None:
        app = scope.app
        self.gate = gate
        """Of its source partition, where `ordering="strict"`."""
        self.scope = scope
        self._guards = scope.guards
        self._is_counted = scope.guards is not None or scope.brake is not None
        """Whether somebody wants to know what passes."""
        self.partition = partition
        self.delay = delay
        self.tracker = tracker
        self.settle = tracker.complete
        """Called with the offsets of records that are complete: what they wrote is durable."""
        self.assigned = assigned = Assigned(partition, delay)
        self.lots: set[Lot] = set()
        """Those that run."""
        self._lanes = lanes = Lanes(
            app.ordering, app.concurrency, scope.long_lanes, together=app.guarantee.database
        )
        self._delay_queue = DelayQueue()
        self._unacked = Unacked()
        self._detained: set[Work] = set()
        self._given_back = given_back = GivenBack(tracker, lanes)
        self._reception = Reception(
            scope, assigned, lanes, self._delay_queue, given_back, gate=gate
        )
        self.fresh = Fresh(
            scope,
            assigned,
            tracker=tracker,
            lanes=lanes,
            given_back=given_back,
            reception=self._reception,
            blocked=() if gate is None else gate.keys,
        )
        if gate is not None:
            known = scope.envelopes.for_report
            gate.join(partition, Station(lanes, tracker, given_back, self.fresh.spread, known))

    @property
    def closed(self) -> bool:
        """Whether the partition was taken away."""
        return self.assigned.closed

    # Records come in

    def offer(self, records: Sequence[Record], now: int) -> Report | None:
        """Take in records that were read, in the order of their offsets.

        None: not now. They are read again, after one that was given back.
        """
        if self._given_back.goes_back:
            return None
        report = Report()
        if self.gate is not None and records:  # without one, nothing is put off
            self._given_back.note_read(records[-1].offset + 1)
        wanted = self.tracker.receive(list(map(_offset, records)))
        if len(wanted) != len(records):
            keep = set(wanted)
            records = [record for record in records if record.offset in keep]
        if not self.fresh.add(records, now, self.lots):
            self.fresh.spread(now, report)
            # First what has waited and is due by now: these records may be due as well.
            self._release_due(now, report)
            self._reception.take_in(records, now, report)
        if self.gate is not None and self.delay is None and records:
            self.gate.read_to(records[-1].offset + 1)
        return report

    @property
    def goes_back(self) -> bool:
        """Whether reading has to go back: until then nothing is taken in."""
        return self._given_back.goes_back

    def take_seek(self) -> int | None:
        """Where reading has to go back to, if a record was given back; asked once, then done."""
        return self._given_back.take_seek()

    def bury(self, record: Record, reason: str, error: BaseException, now: int) -> Report:
        """End a record without calling anybody: it was proven to be deadly."""
        self.tracker.receive([record.offset])
        return self._reception.bury(record, decisions.Bury(reason), error, now)

    # Time passes

    def due(self, now: int) -> Report:
        """Make ready what has waited long enough; some records need no handler for what is next."""
        report = Report()
        steady = self.scope.steady(now)
        self._lanes.wake(steady)
        self._release_due(now, report)
        for work in self._unacked.take_overdue(steady):
            error = HandlerTimeout(
                f"{work.record.place} was not acknowledged within its handler's time-out"
            )
            self._settle_ack(work, error, now, report)
        return report

    def _release_due(self, now: int, report: Report) -> None:
        for work, due in self._delay_queue.take(now):
            if self._reception.release(work, due, now, report):
                self._delay_queue.add(work, now + _LATER)  # there is an outage

    def look_again(self, now: int) -> Report:
        """Decide again about what waits until it is due: rules about it have changed."""
        report = Report()
        held = [work for work in self._lanes.waiting() if self._reception.is_held(work)]
        self._lanes.take_out(held)
        if self._guards is not None:
            self._guards.ended(held, now)  # one may have been let out as a probe
        held += self._held_by_key()
        for each in held:  # due by now, and not begun with
            self._reception.release(each, now, now, report)
        undecided = deque(self._delay_queue.take_all())
        try:
            while undecided:
                if self._reception.release(*undecided[0], now, report):
                    self._delay_queue.add(*undecided[0])
                undecided.popleft()
        finally:
            for work, due in undecided:
                self._delay_queue.add(work, due)
        return report

    def _held_by_key(self) -> list[Work]:
        """Those that operators hold, of what waits for its key."""
        if self.gate is None:
            return []
        waiting = self.gate.held(self.partition)
        held = [work for work in waiting if self._reception.is_held(work)]
        for work in held:
            self.gate.lets_out(self.partition, work)
        return held

    def next_due(self) -> int | None:
        """When `due` has something to do; None: not by itself."""
        parked = self._delay_queue.next_due()
        waits = [
            self.scope.on_the_clock(time)
            for time in (self._lanes.next_wake(), self._unacked.next_end())
            if time is not None
        ]
        return min(waits if parked is None else [parked, *waits], default=None)

    @property
    def not_due(self) -> int:
        """How many records of a delay topic wait here until they are due."""
        return len(self._delay_queue)

    @property
    def unacked(self) -> int:
        """How many records wait for a manual acknowledgement."""
        return len(self._unacked)

    def oldest_waiting(self) -> int | None:
        """The timestamp of the oldest record in lanes."""
        times = [work.record.timestamp for work in self._lanes.waiting()]
        return min((time for time in times if time is not None), default=None)

    def stop_waiting(self, now: int) -> Report:
        """Park what waits in place, where its policy has a delay topic for it.

        Not what has not run here: parking counts an attempt.
        """
        report = Report()
        for work in self._lanes.sleepers():
            if work.tries == 1 or work.ending is not None or work.envelope is None:
                continue
            if work in self._detained or (self._guards is not None and self._guards.holds(work)):
                continue
            outcome = self.scope.verdicts.park_early(work, now)
            if outcome is not None:
                self._lanes.drop(work)
                report.outcomes.append(outcome)
        return report

    # Lots go out

    @property
    def ready(self) -> int:
        """How many lots `next` has to give, about; 0: none."""
        if self._lanes.ready:
            return self._lanes.ready
        waiting = self.fresh.queue
        if self.fresh.is_shared:
            return len(waiting)
        return 1 if waiting and not self.lots else 0

    @property
    def ready_in_lanes(self) -> int:
        """How many of them are in lanes."""
        return self._lanes.ready

    @property
    def quick(self) -> bool:
        """Whether its handlers take so little time that a few threads are enough."""
        return self._lanes.quick

    @property
    def brisk(self) -> int:
        """How many lots have not been with one record for long."""
        now = self.scope.timer()
        return sum(not takes_long(lot.since, now) for lot in self.lots)

    def next(self) -> Lot | None:
        """The next lot that may run; every lot must be ended."""
        works, lanes = self._lanes.take() if self._lanes.ready else ([], [])
        if works:
            lot = Lot(self.scope, self.assigned, works, lanes)
            self._detained.difference_update(works)
            if self._guards is not None and len(works) == 1:
                lot.fails_with = self._guards.own_failure(works[0])
        elif (turn := self.fresh.next(self.lots)) is not None:
            lot = turn
        else:
            return None
        self.lots.add(lot)
        return lot

    # An outage of what a handler depends on

    def shut(self, topic: str, now: int, report: Report) -> None:
        """Let nothing of a handler begin, but for what `let_out` lets out."""
        if self.partition.topic == topic:
            self.fresh.shut(now, report)
        self._lanes.shut_off(topic)
        for lot in self.lots:
            if lot.handler.topic == topic:
                lot.cancelled = True

    def reopen(self, topic: str) -> None:
        """Let all of a handler's records begin again."""
        self._lanes.reopen(topic)

    def let_out(self, topic: str) -> Work | None:
        """Let one record of a handler begin, alone; None: none waits here."""
        tried = () if self._guards is None else self._guards.tried(topic, self.partition)
        return self._lanes.let_out(topic, last=tried)

    @property
    def only_held(self) -> bool:
        """Whether nothing runs, and nothing waits but for the end of an outage, or of a doubt."""
        guards = self._guards
        if guards is None or self.lots or self.ready or self._unacked or len(self._delay_queue):
            return False
        return all(guards.holds(work) for work in self._lanes.sleepers())

    def held(self) -> Counter[str]:
        """How many records wait for the end of an outage, by their handlers' topics."""
        guards = self._guards
        if guards is None:
            return Counter()
        waiting = [*self._lanes.waiting(), *self._delay_queue.works()]
        topics = (work.handler.topic for work in waiting)
        return Counter(topic for topic in topics if guards.is_shut(topic))

    def rouse(self, works: Sequence[Work]) -> None:
        """Have these wait no longer."""
        if works:
            self._lanes.rouse(works)

    # Results come back

    def collect(self, now: int) -> Report:
        """Take what is done of lots that are still under way."""
        report = Report()
        if not self.closed:
            for lot in self.lots:
                if self._is_counted:
                    self._collect_from(lot, now, report)
                else:
                    lot.collect(report)
        return report

    def _collect_from(self, lot: Lot, now: int, report: Report) -> None:
        """As the lot does, and have it counted."""
        brake = self.scope.brake
        start, before = lot.reported, len(report.done) + len(report.sent)
        lot.collect(report)
        passed = len(report.done) + len(report.sent) - before
        if passed and brake is not None:
            brake.well(passed, self.scope.steady(now))
        if passed and self._guards is not None:
            works = lot.works[start : lot.reported]
            self._guards.have_passed(lot.handler.topic, passed, works, now)

    def look_for_slow(self, now: int) -> Report | None:
        """Let those go on that wait for a record that takes long, and need not; None: none does."""
        report = self.fresh.look_for_slow(now)
        for lot in self.lots:
            # With one lane, all have to wait for it.
            begun = len(lot.lanes) != 1 and 0 < len(lot.todo) < len(lot.works)
            if begun and takes_long(lot.since, self.scope.timer()):
                report = Report() if report is None else report
                self._cut(lot, now, report)
        if report is None and self.quick and self.ready and self.brisk < len(self.lots):
            return Report()  # nothing has come of it, but others may begin
        return report

    def _cut(self, lot: Lot, now: int, report: Report) -> None:
        """Take those away from a lot that have not begun; they wait where they were."""
        rest = lot.take_todo()
        # Only now: of those that had begun but for one, the results are there.
        self._collect_from(lot, now, report)
        self._lanes.put_back(rest)
        under_way = {work.lane for work in lot.works[lot.reported :]}
        gone = [lane for lane in lot.lanes if lane not in under_way]
        for lane in gone:
            self._lanes.free(lane)
        lot.lanes = [lane for lane in lot.lanes if lane in under_way]
        if self.gate is not None:
            self.gate.freed(gone)

    def end(self, lot: Lot, now: int) -> Report:
        """End a lot: its records have their results, or go back to where they waited.

        If the partition was taken away, nothing of it counts.
        """
        self.lots.discard(lot)
        report = Report()
        if self.assigned.closed:
            return report
        self.fresh.ended(lot)
        failed = bool(lot.results) and isinstance(lot.results[-1], BaseException)
        if self._guards is not None and failed and lot.fails_with is None:  # else nobody was called
            self._guards.took(lot.handler.topic, self.scope.timer() - lot.since)
        if self._is_counted:
            self._collect_from(lot, now, report)
        else:
            lot.collect(report)
        if lot.calls and not lot.recovering:
            self._lanes.note_pace(lot.seconds, lot.calls)
        if lot.works or lot.lanes:
            self._complete(lot, now, report)
        if self.fresh.queue or lot.met_odd or lot.odd:
            self.fresh.look_after(lot, now, report, self.lots)
        return report

    def _complete(self, lot: Lot, now: int, report: Report) -> None:
        """Take the results of a lot that were not collected; records without one go back."""
        start, lot.reported = lot.reported, len(lot.results)
        unfinished: list[Work] = []
        waits: dict[Work, int] = {}
        for work, result in zip(lot.works[start : lot.reported], lot.results[start:], strict=True):
            if result is BEHIND:
                unfinished.append(work)
            elif (wait := self._result(work, result, now, report)) is not None:
                unfinished.append(work)
                waits[work] = wait
            elif work in self._unacked and work.lane is not None:
                lot.lanes.remove(work.lane)  # its key waits for the acknowledgement, not for this
        self.note(report)
        if report.given_back:
            self.fresh.spread(now, report)  # they stand behind it, and go back with it
            self._given_back.take(report)
        self._put_back(lot, [*unfinished, *lot.works[lot.reported :]], waits)

    def finish(self, lot: Lot, judged: Judged) -> None:
        """End a lot whose results were judged in units of work."""
        self.lots.discard(lot)
        if self.closed:
            return
        self._given_back.take(judged.report)
        self._detained |= judged.detained
        self._put_back(lot, judged.unfinished(lot.works), judged.waits)

    def nothing_runs(self, lot: Lot, now: int) -> None:
        """Note that nothing of a lot runs any more, but for what waits to be acknowledged."""
        if self._guards is not None and self._guards.is_shut(lot.handler.topic):
            self._guards.ended([work for work in lot.works if work not in self._unacked], now)

    def has_under_way(self, work: Work) -> bool:
        """Whether something will still be heard of a record that was let out."""
        if work in self._unacked or self._lanes.waits_for_thread(work):
            return True
        return any(work in lot.works for lot in self.lots)

    def waiting_works(self) -> list[Work]:
        """The records that wait in lanes, whatever they wait for."""
        return self._lanes.waiting()

    def waits_for_end(self, topic: str) -> bool:
        """Whether records of a handler wait here for the end of its outage."""
        return self._lanes.waits_for_end(topic)

    def call_alone(self, works: Sequence[Work]) -> None:
        """Have each of these called without others, the next time that it is taken."""
        self._lanes.call_alone(works)

    def _put_back(self, lot: Lot, works: list[Work], waits: dict[Work, int]) -> None:
        """Return records that have no outcome to where they waited, and free the lot's lanes."""
        rest = self._given_back.not_behind(works)
        self._lanes.put_back(rest, waits)
        until: dict[Lane | None, int] = {}
        for work in rest:
            if work in waits:
                until[work.lane] = max(waits[work], until.get(work.lane, 0))
        for lane in lot.lanes:
            self._lanes.free(lane, until=until.get(lane))
        if self.gate is not None:
            self.gate.freed(lot.lanes)

    def note(self, report: Report) -> None:
        """Have those of blocked keys follow from what became of others."""
        if self.gate is not None:
            self.gate.note(self.partition, report)

    def acknowledge(self, work: Work, context: object, result: Result, now: int) -> Report:
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

    def _settle_ack(self, work: Work, result: Result, now: int, report: Report) -> None:
        wait = self._result(work, result, now, report)
        self._given_back.take(report)
        if wait is not None:
            self._lanes.put_back([work], {work: wait})
        if work.lane is not None:
            self._lanes.free(work.lane, until=wait)
            if self.gate is not None:
                self.gate.freed([work.lane])
        if self._guards is not None:
            self._guards.ended([work], now)  # whatever came of it, also if no guard was asked

    def _result(self, work: Work, result: Result, now: int, report: Report) -> int | None:
        """Act on one result; returns the steady time until which the record waits for a call."""
        result = self._unacked.first_word(work, result)
        if result is PENDING:
            self._unacked.expect(work, self.scope.steady(now))
            return None
        work.awaited = None
        return self.scope.verdicts.of(work, result, now, report)

    # Outcomes are durable, or refused

    def forget(self, buried: Sequence[Outcome]) -> None:
        """Forget the ids of records that ended outside a unit of work."""
        units = self.scope.units
        if units is not None:
            units.forget([each.envelope for each in buried if each.envelope is not None])

    def refused(self, sent: Sent, error: PublishError, now: int) -> Outcome | None:
        """What becomes of a record that is done, but whose messages their topic does not take.

        None: nothing, because the run ends. Nobody is called. No lock is needed: the record is
        nobody's any more.
        """
        offset, _, subject = sent
        if isinstance(subject, Record):
            handler = self.scope.app.handlers[subject.topic]
            subject = Work(self.assigned, subject, handler, offset, now)
        subject.ending = None  # also where it was its recovery that had done it
        report = Report()
        self.scope.verdicts.failed(subject, error, now, report)
        return report.outcomes[0] if report.outcomes else None

    # The end

    def cut_lots(self) -> None:
        """Lots under way end after the record that runs now."""
        for lot in self.lots:
            lot.cancelled = True
        self.fresh.cut()

    def close(self) -> None:
        """The partition was taken away: nothing new begins, and late results do not count."""
        if not self.closed:
            self._lanes.close()
        self.assigned.closed = True
        self.cut_lots()
