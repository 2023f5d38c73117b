"""Verdicts: what becomes of a record that failed, by its policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from redrive import decisions
from redrive import envelope as envelopes
from redrive.backoff import Backoff
from redrive.envelope import Envelope
from redrive.errors import Conflict, PastError, PublishError, Undecodable
from redrive.processing import outcomes
from redrive.processing.causes import AGAIN
from redrive.processing.outcomes import Outcome, Report, Subject
from redrive.processing.work import Ending, Work
from redrive.record import Record, Write

if TYPE_CHECKING:
    from redrive.processing.scope import Scope

_REFUSED: Final = "refused-write"
"""Why a record is dead whose handler has sent what its topic does not take."""
_RECOVERY: Final = Backoff("1s", factor=2, cap="1m", jitter=0)


class Verdicts:
    """Decides about single records; what it finds is in the work and in the report alone."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._app = scope.app

    def failed(self, work: Work, error: BaseException, now: int, report: Report) -> int | None:
        """Decide; gives the time until which the record waits to be called again."""
        if work.ending is not None:
            return self._recovery_failed(work, work.ending, error, now, report)
        try:
            envelope = self._scope.envelope(work)
        except Exception as mistake:  # noqa: BLE001 -- the user's id function may raise anything
            if not isinstance(error, Undecodable):  # whose data no id can be taken from
                self._no_id(work, mistake, report)
                return None
            envelope = self.origin_envelope(work.record, work.received)
        work.envelope = envelope = envelope.failed(error, trace=self._app.error_traces)
        if (reason := _hopeless(error)) is not None:
            return now if self.ended(work, decisions.Bury(reason), error, report) else None
        decision = work.handler.retry.decide(envelope, error, now, work.tries)
        match decision:
            case decisions.Again(wait):
                self._scope.causes.note(AGAIN, work.record, envelope, error)
                work.tries += 1
                return now + wait
            case decisions.Return(wait):
                self._scope.causes.note(AGAIN, work.record, envelope, error)
                report.given_back.append((work, now + wait))
            case decisions.Park():
                report.outcomes.append(
                    outcomes.park(self._app, self.subject(work), decision, error)
                )
            case decisions.Bury() | decisions.Discard():
                return now if self.ended(work, decision, error, report) else None
        return None

    def ended(
        self,
        work: Work,
        decision: decisions.Bury | decisions.Discard,
        error: BaseException,
        report: Report,
    ) -> bool:
        """End a record; True: its recovery has to be called first."""
        if work.handler.recover is None or decision.reason == _REFUSED:
            self.end(work, decision, error, report)
            return False
        work.ending = Ending(decision, error)
        work.tries = 1  # from here on they are the recovery's
        work.envelope = replace(self._scope.envelope(work), dead_reason=decision.reason)
        return True

    def _recovery_failed(
        self, work: Work, ending: Ending, error: BaseException, now: int, report: Report
    ) -> int | None:
        """Keep the count and the decision, and try the recovery again later: never hot."""
        work.envelope = replace(self._scope.envelope(work), dead_reason=ending.decision.reason)
        later = work.handler.retry.recover_later(work.envelope, now)
        if later is None:
            self._scope.causes.note(AGAIN, work.record, work.envelope, error)
            work.tries += 1
            return now + _RECOVERY.wait(work.tries - 1)
        report.outcomes.append(outcomes.park(self._app, self.subject(work), later, error))
        return None

    def end(
        self,
        work: Work,
        decision: decisions.Bury | decisions.Discard,
        error: BaseException,
        report: Report,
        sends: Sequence[Write] = (),
    ) -> None:
        """End a record, with what its recovery has sent."""
        report.outcomes.append(outcomes.end(self._app, self.subject(work), decision, error, sends))

    def _no_id(self, work: Work, mistake: BaseException, report: Report) -> None:
        work.envelope = self.origin_envelope(work.record, work.received).failed(mistake)
        self.end(work, decisions.Bury("no-id"), mistake, report)

    def orphan(self, subject: Subject) -> Outcome:
        """End a record that no handler is there for."""
        reason = decisions.Bury("no-handler")
        return outcomes.end(self._app, subject, reason, past_error(subject.envelope))

    def subject(self, work: Work) -> Subject:
        """What an outcome of a work is about."""
        return Subject(work.offset, work.record, self._scope.envelope(work))

    def origin_envelope(self, record: Record, now: int) -> Envelope:
        """The envelope of a record whose own says nothing, or cannot be read."""
        return envelopes.fresh(
            record, app=self._app.name, message_id=self._scope.origin_id(record), now=now
        )


def _hopeless(error: BaseException) -> str | None:
    """Why no policy is asked about an error: it would be the same again; None: it is asked."""
    if isinstance(error, Undecodable):
        return "undecodable"
    if isinstance(error, Conflict):
        return "conflict"
    if isinstance(error, PublishError) and error.kind == "message":
        return _REFUSED
    return None


def past_error(envelope: Envelope) -> PastError:
    """The error of an attempt before this one, as far as the envelope tells."""
    return PastError(f"{envelope.error_type or 'unknown'}: {envelope.error_message or ''}")
