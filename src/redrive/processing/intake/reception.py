"""Reception: where a record that was read goes; about some it is decided without a call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from redrive import decisions
from redrive import envelope as envelopes
from redrive.parked_rules import NOTHING, Said, said
from redrive.policy import hop_towards
from redrive.processing.calls.scope import Scope
from redrive.processing.intake import classification
from redrive.processing.intake.delay_queue import DelayQueue
from redrive.processing.order.given_back import GivenBack
from redrive.processing.order.key_gate import KeyGate
from redrive.processing.order.lanes import Lanes
from redrive.processing.outcomes.park_and_bury import bury_or_discard, hop, to_origin
from redrive.processing.outcomes.report import Outcome, Report, Subject
from redrive.processing.outcomes.verdicts import past_error
from redrive.processing.work import Assigned, Work

if TYPE_CHECKING:
    from redrive.envelope import Envelope
    from redrive.record import Record

_PARKED_ELSEWHERE: Final = "parked-elsewhere"
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
        *,
        gate: KeyGate | None = None,
    ) -> None:
        self._scope = scope
        self._app = scope.app
        self._verdicts = scope.verdicts
        self._assigned = assigned
        self._delay = assigned.delay
        self._lanes = lanes
        self._delay_queue = delay_queue
        self._given_back = given_back
        self._gate = gate
        self._follows = assigned.place.topic == scope.app.behind_topic

    def take_in(self, records: Iterable[Record], now: int, report: Report) -> None:
        """Put records where they belong, in the order of their offsets."""
        handler = self._app.handlers.get(self._assigned.place.topic)
        plain: list[Work] = []
        blocked = self._gate is not None and bool(self._gate.keys)
        special = handler is None or bool(self._given_back.counts) or blocked
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
        said = self._said(work) if self._scope.parked_rules else NOTHING
        if said.order == "hold":
            waits = self._hold_back(work, now if said.makes_way else due, now, report)
        elif isinstance(work, Subject):
            waits = self._pass_on(work, now if said.order else due, now, report)
        elif said.order == "run-now":
            waits = self._let_go(work, now, report)
        else:
            waits = self._release(work, due, now, report)
        if waits and said.makes_way:
            self._make_way(work, due, now, report)
            return False
        return waits

    def _release(self, work: Work, due: int, now: int, report: Report) -> bool:
        """As its policy says."""
        envelope, guards, held = self._scope.envelopes.of(work), self._scope.guards, 0
        if guards is not None:
            to_origin = isinstance(work.handler.retry.at_once(envelope), decisions.ToOrigin)
            if to_origin and guards.keeps_here(work.handler.topic):
                return True  # at its origin it would only wait as well
            held = guards.held_for(work, now, envelope.due or due)
        release = work.handler.retry.release(envelope, now, due, self._delay or 0, held)
        if isinstance(release, decisions.Wait):
            return True
        self._act(work, release, max(due, envelope.not_before or 0), report)
        return False

    def _act(self, work: Work, leave: decisions.Leave, due: int, report: Report) -> None:
        envelope = self._scope.envelopes.of(work)
        match leave:
            case decisions.Run():
                work.due = due
                if envelope.dead_reason is None or self._recovers(work, envelope, report):
                    self._let_run(work)
            case decisions.Park():
                self._hop(work, leave, report)
            case decisions.ToOrigin():
                report.outcomes.append(to_origin(self._verdicts.subject(work)))
            case decisions.Bury() | decisions.Discard():
                if self._verdicts.ended(work, leave, past_error(envelope), report):
                    self._let_run(work)

    def _let_run(self, work: Work) -> None:
        """Put it into its lane, unless others of its key have to end first."""
        if self._gate is None or not self._gate.holds(self._assigned.place, work):
            self._lanes.add(work)

    def _pass_on(self, orphan: Subject, due: int, now: int, report: Report) -> bool:
        here = self._assigned.place.topic
        outcome = self._verdicts.unhandled(orphan, now, due, self._delay or 0, here)
        if outcome is not None:
            report.outcomes.append(outcome)
        return outcome is None

    # What operators say

    def _said(self, work: Work | Subject) -> Said:
        if self._follows or (isinstance(work, Work) and work.tries > 1):
            return NOTHING  # it has not failed, or has run and waits for its backoff
        place, envelope = self._assigned.place, self._envelope(work)
        topic_id = self._scope.topic_ids.get(place.topic)
        return said(
            self._scope.parked_rules,
            place,
            topic_id,
            work.offset,
            group=envelope.error_group,
            record_id=envelope.id,
        )

    def _let_go(self, work: Work, now: int, report: Report) -> bool:
        """It is due now, whenever it was: nothing of that may hold it up at its origin."""
        work.envelope = envelope = replace(self._envelope(work), due=now, not_before=None)
        self._act(work, work.handler.retry.at_once(envelope), now, report)
        return False

    def _hold_back(self, work: Work | Subject, due: int, now: int, report: Report) -> bool:
        """Park it again when it is due, in the topic where it is; it is not an attempt.

        One that has to make way does so in the same way: elsewhere it might not be held.
        """
        if now < due:
            return True
        envelope, delay = self._envelope(work), self._delay or 0
        later = envelope.not_before if (envelope.not_before or 0) > now + delay else None
        to = decisions.Park(delay, now + delay, envelope.attempt, later)
        self._hop(work, to, report, reason="held")
        return False

    def _make_way(self, work: Work | Subject, due: int, now: int, report: Report) -> None:
        """Let it wait elsewhere, for the time that it has left; it is not an attempt.

        It may be late by the smallest delay, and too old by then. It cannot stay instead: those
        behind it could not be committed with `transaction`, and would run again and again.
        """
        envelope = self._envelope(work)
        delays = [*self._app.delay_topics.values()] or [self._delay or 0]
        target = max(due, envelope.not_before or 0)
        to = hop_towards(target, delays, envelope.attempt, now)
        self._hop(work, to, report, reason="makes way")

    def _envelope(self, work: Work | Subject) -> Envelope:
        return work.envelope if isinstance(work, Subject) else self._scope.envelopes.of(work)

    def _hop(
        self,
        work: Work | Subject,
        to: decisions.Park,
        report: Report,
        *,
        reason: str = "on its way",
    ) -> None:
        subject = work if isinstance(work, Subject) else self._verdicts.subject(work)
        here = self._assigned.place.topic
        report.outcomes.append(hop(self._app, subject, to, here, reason=reason))

    def _recovers(self, work: Work, envelope: Envelope, report: Report) -> bool:
        """Whether a record that waits for its recovery has one; else it has ended now."""
        decision = work.handler.retry.ending(envelope.dead_reason or "")
        return self._verdicts.ended(work, decision, past_error(envelope), report)

    def is_held(self, work: Work) -> bool:
        """Whether operators have said that a record must not run, which waits for a thread."""
        return self._delay is not None and self._said(work).order == "hold"

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
                if not self._verdicts.stops(record, _BROKEN, error, now):
                    report.outcomes += self.bury(record, _BROKEN, error, now).outcomes
            case classification.Ours(envelope):
                gate = self._gate if self._delay is not None else None
                if gate is not None and envelope is not None:
                    self._arrive(gate, record, now, envelope, report)
                else:
                    self._accept(record, now, envelope, report)

    def _arrive(
        self, gate: KeyGate, record: Record, now: int, envelope: Envelope, report: Report
    ) -> None:
        """Take a record of a room in, if it is not one too many, in strict order."""
        if not gate.arrives(self._assigned.place, record, envelope):
            seen = envelopes.at_origin(record, envelope)
            report.outcomes.append(Outcome("skip", record.offset, seen, reason="a copy"))
            return
        if not gate.is_about(envelope) and envelope.operation is None:
            # Where its copies belong, one would be taken for that of a worker that is gone.
            envelope = replace(envelope, operation=_PARKED_ELSEWHERE)
        self._accept(record, now, envelope, report)

    def _accept(self, record: Record, now: int, envelope: Envelope | None, report: Report) -> None:
        origin = record.topic if envelope is None else envelope.origin_topic
        handler = self._app.handlers.get(origin)
        seen = record if envelope is None else envelopes.at_origin(record, envelope)
        if handler is None:
            known = envelope or self._scope.envelopes.at_origin(record, now)
            orphan = Subject(record.offset, seen, known)
            if self._delay is None:
                outcome = self._verdicts.orphan(orphan, now)
                report.outcomes += () if outcome is None else (outcome,)
            else:
                self._queue_until_due(orphan, self._due(record, known), now, report)
            return
        if envelope is not None and envelope.unhandled_since is not None:
            envelope = replace(envelope, unhandled_since=None)
        work = Work(self._assigned, seen, handler, record.offset, now, envelope)
        work.tries, until = self._given_back.taken_up(record.offset)
        if self._delay is None or envelope is None:
            if self._gate is not None and self._gate.takes(work, report):
                return
            if envelope is not None and envelope.due is not None and envelope.due > now:
                until = max(until or 0, self._scope.steady(envelope.due))
            self._lanes.add(work, until=until)
            return
        due = self._due(record, envelope)
        if until is not None:
            due = max(due, self._scope.on_the_clock(until))
        self._queue_until_due(work, due, now, report)

    def _due(self, record: Record, envelope: Envelope) -> int:
        # The broker's clock counts as well as ours: never early, whichever of them is ahead.
        return max(envelope.due or 0, (record.timestamp or 0) + (self._delay or 0))

    def _queue_until_due(self, work: Work | Subject, due: int, now: int, report: Report) -> None:
        if self.release(work, due, now, report):
            self._delay_queue.add(work, due)
