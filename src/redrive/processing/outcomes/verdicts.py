"""Verdicts: what becomes of a record after its call; of one that failed, by its policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from redrive import decisions
from redrive import envelope as envelopes
from redrive.backoff import Backoff
from redrive.envelope import Envelope
from redrive.errors import Conflict, NoIdError, PastError, PublishError, Undecodable, Unhandled
from redrive.fingerprint import class_name
from redrive.processing.outcomes.causes import AGAIN, Tally
from redrive.processing.outcomes.dead_brake import DeadBrake
from redrive.processing.outcomes.envelopes import Envelopes
from redrive.processing.outcomes.guards import Guards
from redrive.processing.outcomes.park_and_bury import bury_or_discard, hop, park
from redrive.processing.outcomes.report import Outcome, Report, Subject
from redrive.processing.work import DUPLICATE, Ending, Result, TakenCareOf, Work
from redrive.record import Record, Write

if TYPE_CHECKING:
    from redrive.app import App

_REFUSED: Final = "refused-write"
"""Why a record is dead whose handler has sent what its topic does not take."""
_ORPHAN: Final = decisions.Bury("no-handler")
_NO_ID: Final = decisions.Bury("no-id")
_MINUTE: Final = 60_000
_RECOVERY: Final = Backoff("1s", factor=2, cap="1m", jitter=0)


class Verdicts:
    """Decides about single records; what it finds is in the work and in the report alone."""

    def __init__(
        self,
        app: App,
        envelopes: Envelopes,
        causes: Tally,
        steady: Callable[[int], int],
        *,
        guards: Guards | None = None,
        brake: DeadBrake | None = None,
    ) -> None:
        """`steady` turns a time of the clock into one that nobody sets: waits are counted in it."""
        self._app = app
        self.is_strict = app.ordering == "strict"
        self._envelopes = envelopes
        self._causes = causes
        self._steady = steady
        self._guards = guards
        self._brake = brake

    def of(self, work: Work, result: Result, now: int, report: Report) -> int | None:
        """Judge one result; returns the steady time until which the record waits for a call.

        Nothing changes but the record's own count, envelope and end.
        """
        if isinstance(result, BaseException):
            return self.failed(work, result, now, report)
        if self._guards is not None and work.ending is None and result is not DUPLICATE:
            self._guards.passed(work, now)
        self._goes_well(work, now)
        if result is DUPLICATE:
            report.outcomes.append(Outcome("duplicate", work.offset, work.record))
        elif work.ending is not None and not isinstance(result, TakenCareOf):
            sends = result if isinstance(result, list) else ()
            self._end(work, work.ending.decision, work.ending.error, report, sends)
        elif isinstance(result, list):
            report.sent.append((work.offset, result, work))
        else:
            report.done.append(work.offset)
        return None

    def failed(self, work: Work, error: BaseException, now: int, report: Report) -> int | None:
        """Decide; returns the steady time until which the record waits to be called again."""
        if work.ending is not None and not isinstance(error, NoIdError):
            return self._recovery_failed(work, work.ending, error, now, report)
        envelope = self._identified(work, error)
        if isinstance(envelope, BaseException):
            return self._no_id(work, envelope, now, report)
        hopeless = _hopeless(error)
        if hopeless is None and (held := self._held(work, error, now)) is not None:
            return held
        work.envelope = envelope = self.with_error(envelope, work.record, error, now)
        if hopeless is None:
            held = 0 if self._guards is None else self._guards.held_for(work, now)
            decision = work.handler.retry.decide(envelope, error, now, work.tries, held)
        else:
            decision = decisions.Bury(hopeless)
        match decision:
            case decisions.Again(wait, counts):
                self._causes.note(AGAIN, work.record, envelope, error)
                work.tries += counts
                return self._steady(now) + wait
            case decisions.Return(wait, counts):
                self._causes.note(AGAIN, work.record, envelope, error)
                work.tries -= not counts  # whoever takes it counts one more
                report.given_back.append((work, self._steady(now) + wait))
            case decisions.Park():
                self._goes_well(work, now)
                report.outcomes.append(park(self._app, self.subject(work), decision, error))
            case decisions.Bury() | decisions.Discard():
                return self._at_once(work, decision, error, now, report)
        return None

    def _goes_well(self, work: Work, now: int) -> None:
        """Note that a record is not buried now."""
        if self._brake is not None and work.ending is None:
            self._brake.well(1, self._steady(now))

    def _held(self, work: Work, error: BaseException, now: int) -> int | None:
        """Until when it is not yet known, or not, that a failure is the record's own."""
        return None if self._guards is None else self._guards.failed(work, error, now)

    def _identified(self, work: Work, error: BaseException) -> Envelope | BaseException:
        """The envelope of a record that failed; or why it has no id: it ends by that."""
        if isinstance(error, NoIdError):
            # Nothing of it can be called, its recovery neither: it would be the same each time.
            return error.__cause__ or error
        try:
            return self._envelopes.of(work)
        except Exception as mistake:  # noqa: BLE001 -- the user's id function may raise anything
            if isinstance(error, Undecodable):  # from whose data no id can be taken
                return self._envelopes.at_origin(work.record, work.received)
            return _both(error, mistake)

    def _at_once(
        self,
        work: Work,
        decision: decisions.Bury | decisions.Discard,
        error: BaseException,
        now: int,
        report: Report,
    ) -> int | None:
        """End a record; if its recovery has to be called first, that waits for nothing."""
        if isinstance(decision, decisions.Discard):
            self._goes_well(work, now)  # as its app wants it: no letter is written
        elif self.stops(work.record, decision, error, now):
            return self._steady(now) + _MINUTE  # the run ends before that
        ended = not self.ended(work, decision, error, report)
        return None if ended else self._steady(now)

    def stops(
        self, record: Record, decision: decisions.Bury, error: BaseException, now: int
    ) -> bool:
        """Whether a record is not buried: the run ends, and the next one has it."""
        brake = self._brake
        return brake is not None and brake.stops(record, decision.reason, error, self._steady(now))

    def ended(
        self,
        work: Work,
        decision: decisions.Bury | decisions.Discard,
        error: BaseException,
        report: Report,
    ) -> bool:
        """End a record; True: its recovery has to be called first."""
        if work.handler.recover is None or decision.reason == _REFUSED:
            self._end(work, decision, error, report)
            return False
        work.ending = Ending(decision, error)
        work.tries = 1  # from here on they are the recovery's
        work.envelope = replace(self._envelopes.of(work), dead_reason=decision.reason)
        return True

    def _recovery_failed(
        self, work: Work, ending: Ending, error: BaseException, now: int, report: Report
    ) -> int | None:
        """Keep the count and the decision, and try the recovery again later: never hot."""
        work.envelope = replace(self._envelopes.of(work), dead_reason=ending.decision.reason)
        later = work.handler.retry.recover_later(work.envelope, now)
        if later is None:
            self._causes.note(AGAIN, work.record, work.envelope, error)
            work.tries += 1
            return self._steady(now) + _RECOVERY.wait(work.tries - 1)
        report.outcomes.append(park(self._app, self.subject(work), later, error))
        return None

    def _end(
        self,
        work: Work,
        decision: decisions.Bury | decisions.Discard,
        error: BaseException,
        report: Report,
        sends: Sequence[Write] = (),
    ) -> None:
        """End a record, with what its recovery has sent."""
        report.outcomes.append(
            bury_or_discard(self._app, self.subject(work), decision, error, sends)
        )

    def with_error(
        self, envelope: Envelope, record: Record, error: BaseException, now: int
    ) -> Envelope:
        """The envelope of a record that failed, with the error and with what it belongs to."""
        group = self._causes.fingerprint(record, error).id
        return envelope.failed(error, at=now, group=group, trace=self._app.error_traces)

    def _no_id(self, work: Work, mistake: BaseException, now: int, report: Report) -> int | None:
        if work.ending is None and self.stops(work.record, _NO_ID, mistake, now):
            return self._steady(now) + _MINUTE
        known = work.envelope or self._envelopes.at_origin(work.record, work.received)
        work.envelope = self.with_error(known, work.record, mistake, now)
        self._end(work, _NO_ID, mistake, report)
        return None

    def orphan(self, subject: Subject, now: int) -> Outcome | None:
        """End a record that no handler is there for; None: the run ends before that."""
        error = past_error(subject.envelope)
        if self.stops(subject.record, _ORPHAN, error, now):
            return None
        return bury_or_discard(self._app, subject, _ORPHAN, error)

    def unhandled(
        self, subject: Subject, now: int, due: int, delay: int, here: str
    ) -> Outcome | None:
        """What becomes of a parked record that no handler is there for; None: it is not due.

        A version that has the handler may run beside this one, or come after it: it moves on from
        delay topic to delay topic until the app's patience is over.
        """
        envelope, patience = subject.envelope, self._app.unhandled
        since = now if envelope.unhandled_since is None else envelope.unhandled_since
        if patience is not None and now - since >= patience:
            return self.orphan(subject, now)
        if now < due:
            return None
        delay = _patient(self._app.delay_topics.values(), delay)
        to = decisions.Park(delay, now + delay, envelope.attempt, envelope.not_before)
        waits = subject._replace(envelope=replace(envelope, unhandled_since=since))
        error = Unhandled(f"waits for a version that handles {envelope.origin_topic}")
        return hop(self._app, waits, to, here, reason=_ORPHAN.reason, error=error)

    def park_early(self, work: Work, now: int) -> Outcome | None:
        """Park a record that waits in place; None: its policy has no delay topic for it."""
        decision = work.handler.retry.park_instead(self._envelopes.of(work), now)
        if decision is None:
            return None
        return park(self._app, self.subject(work), decision, None)

    def subject(self, work: Work) -> Subject:
        """What an outcome of a work is about."""
        return Subject(work.offset, work.record, self._envelopes.of(work))


def _both(error: BaseException, mistake: Exception) -> BaseException:
    """What a record failed with, and why it has no id: one error, with the trace of the first."""
    if type(error) is type(mistake) and envelopes.text_of(error) == envelopes.text_of(mistake):
        return error  # the handler has asked for the id itself
    said = f"{class_name(type(error))}: {envelopes.text_of(error)}"
    both = NoIdError(f"{envelopes.text_of(mistake)}; before that it failed with {said}")
    return both.with_traceback(error.__traceback__)


def _hopeless(error: BaseException) -> str | None:
    """Why no policy is asked about an error: it would be the same again; None: it is asked."""
    if isinstance(error, Undecodable):
        return "undecodable"
    if isinstance(error, Conflict):
        return "conflict"
    if isinstance(error, PublishError) and error.kind == "message":
        return _REFUSED
    return None


def _patient(delays: Collection[int], here: int) -> int:
    """The delay by which a record waits for its handler: a minute or a little more, if there is."""
    return min((each for each in delays if each >= _MINUTE), default=max(delays, default=here))


def past_error(envelope: Envelope) -> PastError:
    """The error of an attempt before this one, as far as the envelope tells."""
    return PastError(f"{envelope.error_type or 'unknown'}: {envelope.error_message or ''}")
