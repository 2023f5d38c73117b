"""PartitionProcessor: ordering and policy, applied to the records of one topic-partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from redrive import decisions
from redrive import envelope as envelopes
from redrive.backoff import Backoff
from redrive.envelope import Envelope
from redrive.errors import Conflict, HandlerTimeout, PastError, Undecodable
from redrive.guarantees import GUARANTEES
from redrive.processing import intake, outcomes
from redrive.processing.at_once import AtOnce
from redrive.processing.given_back import GivenBack
from redrive.processing.holding import Holding
from redrive.processing.judged import Judged
from redrive.processing.lanes import Lanes
from redrive.processing.outcomes import Outcome, Report, Subject
from redrive.processing.work import (
    DUPLICATE,
    Ending,
    Lane,
    Lot,
    Pending,
    Result,
    TakenCareOf,
    Work,
)
from redrive.record import Record, TopicPartition, Write

if TYPE_CHECKING:
    from redrive.processing.acks import AckTracker
    from redrive.processing.scope import Scope

_RECOVERY: Final = Backoff("1s", factor=2, cap="1m", jitter=0)
_BROKEN: Final = decisions.Bury("broken-envelope")


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
        self.epoch = tracker.epoch
        self.closed = False
        together = GUARANTEES[self.app.delivery].database
        self._lanes = Lanes(self.app.ordering, self.app.concurrency, together=together)
        self._holding = Holding()
        self._given_back = GivenBack()
        self._returned: set[Lane] = set()
        self._detained: set[Work] = set()
        self._lots: set[Lot] = set()
        self._unacked: dict[Work, int | None] = {}
        self._early_acks: dict[Work, Result] = {}

    # Records come in

    def offer(self, records: Sequence[Record], now: int) -> Report:
        """Take in records that were read, in the order of their offsets."""
        report = Report()
        if self.goes_back:
            return report  # they will be read again, after the one that was given back
        wanted = self.tracker.receive([record.offset for record in records])
        if len(wanted) != len(records):
            keep = set(wanted)
            records = [record for record in records if record.offset in keep]
        handler = self.app.handlers.get(self.partition.topic)
        plain: list[Work] = []
        special = handler is None or bool(self._given_back)
        for record in records:
            if record.headers or special or handler is None:
                if plain:
                    self._lanes.extend(plain)
                    plain = []
                self._offer_one(record, now, report)
            else:
                plain.append(Work(self, record, handler, record.offset, now))
        if plain:
            self._lanes.extend(plain)
        return report

    def _offer_one(self, record: Record, now: int, report: Report) -> None:
        judged = intake.judge(record, self.app.name, in_delay_topic=self.delay is not None)
        match judged:
            case intake.Foreign(app):
                reason = f"for the app {app}"
                report.outcomes.append(Outcome("skip", record.offset, record, reason=reason))
            case intake.Broken(error):
                envelope = self._origin_envelope(record, now).failed(error)
                subject = Subject(record.offset, record, envelope)
                report.outcomes.append(outcomes.end(self.app, subject, _BROKEN, error))
            case intake.Ours(envelope):
                self._accept(record, now, envelope, report)

    def _accept(self, record: Record, now: int, envelope: Envelope | None, report: Report) -> None:
        origin = record.topic if envelope is None else envelope.origin_topic
        handler = self.app.handlers.get(origin)
        seen = record if envelope is None else envelopes.at_origin(record, envelope)
        if handler is None:
            known = envelope or self._origin_envelope(record, now)
            report.outcomes.append(self._orphan(Subject(record.offset, seen, known)))
            return
        work = Work(self, seen, handler, record.offset, now, envelope)
        work.tries, until = self._given_back.taken_up(record.offset)
        if self.delay is None or envelope is None:
            if envelope is not None and envelope.due is not None and envelope.due > now:
                until = max(until or 0, envelope.due)
            self._lanes.add(work, until=until)
            return
        # The broker's clock counts as well as ours: never early, whichever of them is ahead.
        due = max(envelope.due or 0, (record.timestamp or 0) + self.delay, until or 0)
        if self._release(work, due, now, report):
            self._holding.add(work, due)

    # Records that run at once

    def at_once(self, now: int) -> AtOnce | None:
        """Records that come now may run in the order in which they were read; None: not so."""
        handler = self.app.handlers.get(self.partition.topic)
        busy = self._lots or self._unacked or self._given_back or not self._lanes.empty_handed
        if handler is None or busy or self._given_back.seek is not None or self.closed:
            return None
        special = handler.is_async or handler.batch or handler.ack == "manual" or handler.timeout
        watched = self.scope.units is not None or self.scope.times is not None
        if self.delay is not None or special or watched:
            return None
        return AtOnce(self, handler, now)

    def receive(self, offsets: Sequence[int]) -> bool:
        """Take in records that run at once; False, and nothing is taken: some shall not run."""
        wanted = self.tracker.receive(offsets)
        if len(wanted) == len(offsets):
            return True
        self.receive_again(wanted)
        return False

    def receive_again(self, offsets: Sequence[int]) -> None:
        """Take back that these were received: they will be offered."""
        self.tracker.give_back(offsets, self.epoch)

    def failed_at_once(self, work: Work, error: BaseException, now: int) -> Report:
        """Take the failure of a record that ran at once: from here on it is as any other."""
        self._lanes.add(work)
        lot = Lot(self, *self._lanes.take())  # nothing was here but this record
        return self.complete(lot, [error], now)

    # Time passes

    def due(self, now: int) -> Report:
        """Make ready what has waited long enough; some records need no handler for what is next."""
        report = Report()
        self._lanes.wake(now)
        for work, due in self._holding.take(now):
            self._release(work, due, now, report)
        for work in [w for w, end in self._unacked.items() if end is not None and end <= now]:
            error = HandlerTimeout(
                f"{work.record.place} was not acknowledged within its handler's time-out"
            )
            self._settle_ack(work, error, now, report)
        return report

    def next_due(self) -> int | None:
        """When `due` has something to do; None: not by itself."""
        ends = (end for end in self._unacked.values() if end is not None)
        times = (self._lanes.next_wake(), self._holding.next_due(), min(ends, default=None))
        return min((time for time in times if time is not None), default=None)

    def _release(self, work: Work, due: int, now: int, report: Report) -> bool:
        """Act on a record of a delay topic; True: it has to wait."""
        envelope = self.scope.envelope(work)
        release = work.handler.retry.release(envelope, now, due)
        match release:
            case decisions.Wait():
                return True
            case decisions.Run():
                work.due = max(due, envelope.not_before or 0)
                if envelope.dead_reason is not None:
                    work.ending = Ending(
                        work.handler.retry.ending(envelope.dead_reason), _past_error(envelope)
                    )
                self._lanes.add(work)
            case decisions.Park():
                report.outcomes.append(outcomes.hop(self.app, self._subject(work), release))
            case decisions.ToOrigin():
                report.outcomes.append(outcomes.to_origin(self._subject(work)))
            case decisions.Bury() | decisions.Discard():
                if self._ended(work, release, _past_error(envelope), report):
                    self._lanes.add(work)
        return False

    # Work goes out

    @property
    def ready(self) -> int:
        """How many lots `next` has to give, about; 0: none."""
        return self._lanes.ready

    @property
    def quick(self) -> bool:
        """Whether its handlers take so little time that a few threads are enough."""
        return self._lanes.quick

    @property
    def running(self) -> int:
        """How many lots are under way."""
        return len(self._lots)

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
            return None
        lot = Lot(self, works, lanes)
        self._lots.add(lot)
        if self._detained:
            self._detained.difference_update(works)
        return lot

    # Results come back

    def complete(
        self, lot: Lot, results: Sequence[Result], now: int, *, finished: bool = True
    ) -> Report:
        """Take the results of the next records of a lot; those without one go back to their place.

        With `finished=False` the lot goes on, and the rest is yet to come.
        """
        report = Report()
        if self.closed:
            return report
        start, lot.reported = lot.reported, lot.reported + len(results)
        works = lot.works[start : lot.reported]
        holds: dict[Lane | None, int] = {}
        again: list[Work] = []
        slow = lot.recovering
        for work, result in zip(works, results, strict=True):
            if result is None and not slow:
                report.done.append(work.offset)
            elif type(result) is list and not slow:
                report.sent.append((work.offset, result))
            else:
                wait = self._result(work, result, now, report)
                if wait is not None:
                    again.append(work)
                    holds[work.lane] = max(wait, holds.get(work.lane, 0))
        if finished:
            self._lots.discard(lot)
            if lot.seconds is not None and lot.reported:
                self._lanes.note_pace(lot.seconds, lot.reported)
        if report.given_back:
            self._give_back(report)
        self._put_back(lot, again, holds, finished=finished)
        return report

    def take_successes(self, lot: Lot, results: Sequence[Result], report: Report) -> bool:
        """Add the next results of a lot that goes on to a report, if all are successes."""
        if self.closed or lot.recovering:
            return False
        if not all(result is None or type(result) is list for result in results):
            return False
        start, lot.reported = lot.reported, lot.reported + len(results)
        for work, result in zip(lot.works[start : lot.reported], results, strict=True):
            if result is None:
                report.done.append(work.offset)
            else:
                report.sent.append((work.offset, result))  # type: ignore[arg-type]  # -- a list
        return True

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
        if self.closed:
            return
        self._lots.discard(lot)
        self._give_back(judged.report)
        rest = self._not_behind_returned(judged.unfinished(lot))
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

    def acknowledge(self, work: Work, result: Result, now: int) -> Report:
        """Take a manual acknowledgement; it may come before its handler returns."""
        report = Report()
        if self.closed:
            return report
        if work in self._unacked:
            self._settle_ack(work, result, now, report)
        elif any(work in lot.works for lot in self._lots):  # and not after its time-out
            self._early_acks[work] = result
        return report

    def settle(self, offsets: Sequence[int]) -> None:
        """These are complete: what they wrote is durable."""
        self.tracker.complete(offsets, self.epoch)

    def forget(self, buried: Sequence[Outcome]) -> bool:
        """Forget the ids of records that ended outside a unit of work; gives whether it is done."""
        units = self.scope.units
        if units is not None:
            units.forget([each.envelope.id for each in buried if each.envelope is not None])
        return True

    @property
    def goes_back(self) -> bool:
        """Whether reading has to go back: until then nothing is taken in."""
        return self._given_back.seek is not None

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
                report.outcomes.append(outcomes.park(self.app, self._subject(work), decision, None))
        return report

    def bury(self, record: Record, reason: str, error: BaseException, now: int) -> Report:
        """End a record without calling anybody: it was proven to be deadly."""
        report = Report()
        self.tracker.receive([record.offset])
        judged = intake.judge(record, self.app.name, in_delay_topic=self.delay is not None)
        known = judged.envelope if isinstance(judged, intake.Ours) else None
        seen = record if known is None else envelopes.at_origin(record, known)
        envelope = (known or self._origin_envelope(record, now)).failed(error)
        subject = Subject(record.offset, seen, envelope)
        report.outcomes.append(outcomes.end(self.app, subject, decisions.Bury(reason), error))
        return report

    def cut_lots(self) -> None:
        """Lots under way end after the record that runs now."""
        for lot in self._lots:
            lot.cancelled = True

    def close(self) -> None:
        """The partition was taken away: nothing new begins, and late results do not count."""
        self.closed = True
        self.cut_lots()

    def _put_back(
        self, lot: Lot, again: list[Work], holds: dict[Lane | None, int], *, finished: bool
    ) -> None:
        for work in again:
            if work.lane is None:
                self._lanes.put_back([work], until=holds[None])
        rest = lot.works[lot.reported :] if finished else []
        if self._returned:
            rest = self._not_behind_returned(rest)
        self._lanes.put_back([*(work for work in again if work.lane is not None), *rest])
        if not finished:
            return
        if self._unacked and lot.works[0] in self._unacked:
            return  # its key waits for the acknowledgement
        for lane in lot.lanes:
            self._lanes.free(lane, until=holds.get(lane))

    def _not_behind_returned(self, works: list[Work]) -> list[Work]:
        """Those that stay here; who stood behind a record that was given back goes with it."""
        if not self._returned:
            return works
        behind = [work.offset for work in works if work.lane in self._returned]
        self.tracker.give_back(behind, self.epoch)
        stay = [work for work in works if work.lane not in self._returned]
        self._returned.clear()
        return stay

    def _settle_ack(self, work: Work, result: Result, now: int, report: Report) -> None:
        self._unacked.pop(work)
        wait = self._result(work, result, now, report)
        self._give_back(report)
        if wait is not None:
            self._lanes.put_back([work], until=wait)
        if work.lane is not None:
            self._lanes.free(work.lane, until=wait)

    def _result(self, work: Work, result: Result, now: int, report: Report) -> int | None:
        """Act on one result; gives the time until which the record waits to be called again."""
        if self._early_acks:  # the first word counts, also if the handler failed after it
            result = self._early_acks.pop(work, result)
        if isinstance(result, Pending):
            self._pending(work, now)
            return None
        if isinstance(result, BaseException):
            return self._failed(work, result, now, report)
        if result is DUPLICATE:
            report.outcomes.append(Outcome("duplicate", work.offset, work.record))
        elif work.ending is not None and not isinstance(result, TakenCareOf):
            sends = result if isinstance(result, list) else ()
            self._end(work, work.ending.decision, work.ending.error, report, sends)
        elif isinstance(result, list):
            report.sent.append((work.offset, result))
        else:
            report.done.append(work.offset)
        return None

    def _pending(self, work: Work, now: int) -> None:
        timeout = work.handler.timeout
        self._unacked[work] = None if timeout is None else now + timeout

    # Failures

    def _failed(self, work: Work, error: BaseException, now: int, report: Report) -> int | None:
        if work.ending is not None:
            return self._recovery_failed(work, work.ending, error, now, report)
        try:
            envelope = self.scope.envelope(work)
        except Exception as mistake:  # noqa: BLE001 -- the user's id function may raise anything
            if not isinstance(error, Undecodable):  # whose data no id can be taken from
                self._no_id(work, mistake, report)
                return None
            envelope = self._origin_envelope(work.record, work.received)
        work.envelope = envelope = envelope.failed(error, trace=self.app.error_traces)
        if isinstance(error, Undecodable | Conflict):
            reason = "conflict" if isinstance(error, Conflict) else "undecodable"
            return now if self._ended(work, decisions.Bury(reason), error, report) else None
        decision = work.handler.retry.decide(envelope, error, now, work.tries)
        match decision:
            case decisions.Again(wait):
                work.tries += 1
                return now + wait
            case decisions.Return(wait):
                report.given_back.append((work, now + wait))
            case decisions.Park():
                report.outcomes.append(
                    outcomes.park(self.app, self._subject(work), decision, error)
                )
            case decisions.Bury() | decisions.Discard():
                return now if self._ended(work, decision, error, report) else None
        return None

    def _ended(
        self,
        work: Work,
        decision: decisions.Bury | decisions.Discard,
        error: BaseException,
        report: Report,
    ) -> bool:
        """End a record; True: its recovery has to be called first."""
        if work.handler.recover is None:
            self._end(work, decision, error, report)
            return False
        work.ending = Ending(decision, error)
        work.envelope = replace(self.scope.envelope(work), dead_reason=decision.reason)
        return True

    def _recovery_failed(
        self, work: Work, ending: Ending, error: BaseException, now: int, report: Report
    ) -> int | None:
        """Keep the count and the decision, and try the recovery again later: never hot."""
        work.envelope = replace(self.scope.envelope(work), dead_reason=ending.decision.reason)
        later = work.handler.retry.recover_later(work.envelope, now)
        if later is None:
            work.tries += 1
            return now + _RECOVERY.wait(work.tries - 1)
        report.outcomes.append(outcomes.park(self.app, self._subject(work), later, error))
        return None

    def _give_back(self, report: Report) -> None:
        for work, until in report.given_back:
            behind: list[Work] = []
            if work.lane is not None:  # nobody behind it in its lane may overtake it
                behind = self._lanes.empty(work.lane)
                self._returned.add(work.lane)
            self._given_back.add(work.offset, work.tries + 1, until)
            self.tracker.give_back([work.offset, *(each.offset for each in behind)], self.epoch)

    def _end(
        self,
        work: Work,
        decision: decisions.Bury | decisions.Discard,
        error: BaseException,
        report: Report,
        sends: Sequence[Write] = (),
    ) -> None:
        report.outcomes.append(outcomes.end(self.app, self._subject(work), decision, error, sends))

    def _no_id(self, work: Work, mistake: BaseException, report: Report) -> None:
        work.envelope = self._origin_envelope(work.record, work.received).failed(mistake)
        self._end(work, decisions.Bury("no-id"), mistake, report)

    def _orphan(self, subject: Subject) -> Outcome:
        reason = decisions.Bury("no-handler")
        return outcomes.end(self.app, subject, reason, _past_error(subject.envelope))

    def _subject(self, work: Work) -> Subject:
        return Subject(work.offset, work.record, self.scope.envelope(work))

    def _origin_envelope(self, record: Record, now: int) -> Envelope:
        return envelopes.fresh(
            record, app=self.app.name, message_id=self.scope.origin_id(record), now=now
        )


def _past_error(envelope: Envelope) -> PastError:
    return PastError(f"{envelope.error_type or 'unknown'}: {envelope.error_message or ''}")
