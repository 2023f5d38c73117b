"""Reception: where a record that was read goes; about some it is decided without a call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from redrive import decisions
from redrive import envelope as envelopes
from redrive.processing.calls.scope import Scope
from redrive.processing.intake import classification
from redrive.processing.intake.delay_queue import DelayQueue
from redrive.processing.order.given_back import GivenBack
from redrive.processing.order.lanes import Lanes
from redrive.processing.outcomes.park_and_bury import bury_or_discard, hop, to_origin
from redrive.processing.outcomes.report import Outcome, Report, Subject
from redrive.processing.outcomes.verdicts import past_error
from redrive.processing.work import Assigned, Work

if TYPE_CHECKING:
    from redrive.envelope import Envelope
    from redrive.record import Record

_BROKEN: Final = decisions.Bury("broken-envelope")


class Reception:
    """Puts records into their lanes, or among those that wait until they are due."""

    def __init__(
        self,
        scope: Scope,
        assigned: Assigned,
        lanes: Lanes,
        delay_queue: DelayQueue,
        given_back: GivenBack,
    ) -> None:
        self._scope = scope
        self._app = scope.app
        self._verdicts = scope.verdicts
        self._assigned = assigned
        self._delay = assigned.delay
        self._lanes = lanes
        self._delay_queue = delay_queue
        self._given_back = given_back

    def take_in(self, records: Iterable[Record], now: int, report: Report) -> None:
        """Put records where they belong, in the order of their offsets."""
        handler = self._app.handlers.get(self._assigned.place.topic)
        plain: list[Work] = []
        special = handler is None or bool(self._given_back.counts)
        for record in records:
            if record.headers or special or handler is None:
                if plain:
                    self._lanes.extend(plain)
                    plain = []
                self._take_in_one(record, now, report)
            else:
                plain.append(Work(self._assigned, record, handler, record.offset, now))
        if plain:
            self._lanes.extend(plain)

    def release(self, work: Work | Subject, due: int, now: int, report: Report) -> bool:
        """Act on a record of a delay topic; True: it has to wait.

        A subject is one that this version of the app has no handler for.
        """
        here = self._assigned.place.topic
        if isinstance(work, Subject):
            outcome = self._verdicts.unhandled(work, now, due, self._delay or 0, here)
            if outcome is None:
                return True
            report.outcomes.append(outcome)
            return False
        envelope = self._scope.envelopes.of(work)
        release = work.handler.retry.release(envelope, now, due, self._delay or 0)
        match release:
            case decisions.Wait():
                return True
            case decisions.Run():
                work.due = max(due, envelope.not_before or 0)
                if envelope.dead_reason is None or self._recovers(work, envelope, report):
                    self._lanes.add(work)
            case decisions.Park():
                report.outcomes.append(hop(self._app, self._verdicts.subject(work), release, here))
            case decisions.ToOrigin():
                report.outcomes.append(to_origin(self._verdicts.subject(work)))
            case decisions.Bury() | decisions.Discard():
                if self._verdicts.ended(work, release, past_error(envelope), report):
                    self._lanes.add(work)
        return False

    def _recovers(self, work: Work, envelope: Envelope, report: Report) -> bool:
        """Whether a record that waits for its recovery has one; else it has ended now."""
        decision = work.handler.retry.ending(envelope.dead_reason or "")
        return self._verdicts.ended(work, decision, past_error(envelope), report)

    def bury(
        self, record: Record, decision: decisions.Bury, error: BaseException, now: int
    ) -> Report:
        """End a record without calling anybody."""
        judged = self._judged(record)
        known = judged.envelope if isinstance(judged, classification.Ours) else None
        seen = record if known is None else envelopes.at_origin(record, known)
        envelope = known or self._scope.envelopes.at_origin(record, now)
        envelope = self._verdicts.with_error(envelope, seen, error, now)
        report = Report()
        report.outcomes.append(
            bury_or_discard(self._app, Subject(record.offset, seen, envelope), decision, error)
        )
        return report

    def _judged(self, record: Record) -> classification.Intake:
        app, in_delay_topic = self._app, self._delay is not None
        return classification.judge(record, app.name, in_delay_topic=in_delay_topic, was=app.was)

    def _take_in_one(self, record: Record, now: int, report: Report) -> None:
        match self._judged(record):
            case classification.Foreign(app):
                reason = f"for the app {app}"
                report.outcomes.append(Outcome("skip", record.offset, record, reason=reason))
            case classification.Broken(error):
                report.outcomes += self.bury(record, _BROKEN, error, now).outcomes
            case classification.Ours(envelope):
                self._accept(record, now, envelope, report)

    def _accept(self, record: Record, now: int, envelope: Envelope | None, report: Report) -> None:
        origin = record.topic if envelope is None else envelope.origin_topic
        handler = self._app.handlers.get(origin)
        seen = record if envelope is None else envelopes.at_origin(record, envelope)
        if handler is None:
            known = envelope or self._scope.envelopes.at_origin(record, now)
            orphan = Subject(record.offset, seen, known)
            if self._delay is None:
                report.outcomes.append(self._verdicts.orphan(orphan))
            else:
                self._hold(orphan, self._due(record, known), now, report)
            return
        if envelope is not None and envelope.unhandled_since is not None:
            envelope = replace(envelope, unhandled_since=None)
        work = Work(self._assigned, seen, handler, record.offset, now, envelope)
        work.tries, until = self._given_back.taken_up(record.offset)
        if self._delay is None or envelope is None:
            if envelope is not None and envelope.due is not None and envelope.due > now:
                until = max(until or 0, self._scope.steady(envelope.due))
            self._lanes.add(work, until=until)
            return
        due = self._due(record, envelope)
        if until is not None:
            due = max(due, self._scope.on_the_clock(until))
        self._hold(work, due, now, report)

    def _due(self, record: Record, envelope: Envelope) -> int:
        # The broker's clock counts as well as ours: never early, whichever of them is ahead.
        return max(envelope.due or 0, (record.timestamp or 0) + (self._delay or 0))

    def _hold(self, work: Work | Subject, due: int, now: int, report: Report) -> None:
        if self.release(work, due, now, report):
            self._delay_queue.add(work, due)
