"""Unit: one transaction, from the claims of some records to their commit.

The order of its steps is the guarantee:

1. claim the ids; rivals wait from here on
2. call the handlers, each so that it can be undone alone
3. let the policy judge what came of them
4. say what became of the ids: what the database refuses is refused before anything is written
5. write to Kafka what has to be there before the commit, and wait until it is durable
6. put outbound records into the outbox: the locks of their aggregates are held briefly
7. commit

Whoever runs it settles offsets and frees lanes after that, and not before. Whatever is raised on
the way means that nothing of it happened, but for messages that may be written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from redrive import failpoints
from redrive.delivery import claims
from redrive.delivery.refusing_topics import RefusingTopics
from redrive.delivery.store import Claim, Found, InboxId, Marks, Session
from redrive.envelope import text_of
from redrive.errors import Conflict, NoIdError, PublishError, RedriveError, Undecodable
from redrive.guarantees import Guarantee
from redrive.processing.calls import invoke, rules, savepoints
from redrive.processing.calls.lots import Lot
from redrive.processing.outcomes.judged import Judged
from redrive.processing.work import BEHIND, Lane, Result, Work
from redrive.record import Write
from redrive.tuning import UNIT_SECONDS

if TYPE_CHECKING:
    from redrive.ports import Clock
    from redrive.processing.calls.scope import Scope
    from redrive.processing.outcomes.report import Outcome


current: Final[ContextVar[Session]] = ContextVar("redrive.session")
"""The session of the unit that runs in this thread, or in this task of an event loop."""


class RevokedError(RedriveError):
    """The partition was taken away while its records were handled: somebody else does them."""


class Publishes(Protocol):
    """Writes messages."""

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them; when this returns they are durable."""
        ...

    def refusing(self, topics: Collection[str]) -> Mapping[str, PublishError]:
        """Which of these topics take nothing at all now, and why."""
        ...


@dataclass(frozen=True)
class Tools:
    """What all units of a process share."""

    scope: Scope
    guarantee: Guarantee
    publisher: Publishes
    clock: Clock
    quiet: bool = False
    """Whether somebody else tells which topics refuse writes."""

    @cached_property
    def topics(self) -> RefusingTopics:
        """The topics that refuse what is to be written."""
        return RefusingTopics(self.publisher.refusing, self.clock, quiet=self.quiet)

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them; PublishError, before anything is written, if a topic is shut."""
        self.topics.meet({write.topic for write in writes})
        error = self.topics.refusal(writes)
        if error is not None:
            raise error
        self.publisher.publish(writes)


class _Held(NamedTuple):
    """An id that is this unit's."""

    claim: Claim
    before: Found | None


class Unit:
    """Some records of one lot, in one transaction."""

    def __init__(self, tools: Tools, lot: Lot, works: Sequence[Work]) -> None:
        self._tools = tools
        self._lot = lot
        self._works = works
        self._known: dict[Work, Result] = {}
        """Results that are there before anybody is called."""
        self._held: dict[Work, _Held] = {}
        self._repeats: dict[Work, tuple[Claim, Work]] = {}
        """Records whose id another one of this unit has."""
        self._found: dict[InboxId, Found] = {}
        self._failure: BaseException | None = None
        """What all have failed with, if they have: then nobody is called."""
        self.session: Session | None = None
        self.judged = Judged()
        self.called = 0
        self.seconds = 0.0
        """How many were called, and how long that took."""

    async def run(self, session: Session, until: float) -> None:
        """All steps; but for the first, no record begins after `until` on the monotonic clock."""
        self.session = session
        token = current.set(session)
        try:
            if self._lot.may_hang:
                await session.watch()
            await self._claim(session)
            begin = monotonic()
            if self._lot.in_one_call:
                await self._call_together(session)
            else:
                await self._call_one_by_one(session, min(until, begin + UNIT_SECONDS))
            self.seconds = monotonic() - begin
            await self._mark(session)
            await self._publish()
            failpoints.hit("after-produce")
            await self._send(session)
            await session.commit()
            failpoints.hit("after-database-commit")
        except BaseException:
            self.judged.undo()
            raise
        finally:
            current.reset(token)

    def have_failed(self, error: BaseException) -> None:
        """Note what all records have failed with: nobody is called."""
        self._failure = error

    # Claims

    async def _claim(self, session: Session) -> None:
        wanted: dict[InboxId, tuple[Claim, Work]] = {}
        for work in self._works:
            claim = self._claim_for(work)
            if claim is None:
                continue
            if claim.id in wanted:
                self._repeats[work] = (claim, wanted[claim.id][1])
            else:
                wanted[claim.id] = (claim, work)
        if not wanted:
            return
        # Everybody takes ids in the same order: two units never wait for each other.
        self._found = await session.claim([wanted[name][0] for name in sorted(wanted)])
        for claim, work in wanted.values():
            before = self._found.get(claim.id)
            result = claims.verdict(claim, before)
            if result is None:
                self._held[work] = _Held(claim, before)
            else:
                self._known[work] = result

    def _claim_for(self, work: Work) -> Claim | None:
        """What to claim for a record; None: its result is known, or it needs no id."""
        if work in self._known:
            return None
        if work.ending is None and (error := invoke.decode(work)) is not None:
            self._known[work] = error
            return None
        if not self._tools.guarantee.inbox:
            return None
        if work.ending is not None and work.ending.decision.reason == "conflict":
            return None  # its id is another record's, and stays so: only its recovery is called
        try:
            return claims.claim_of(work, self._tools.scope)
        except Exception as mistake:  # noqa: BLE001 -- users' id and payload functions may raise anything
            self._known[work] = error = NoIdError(text_of(mistake))
            error.__cause__ = mistake
            return None

    # Calls

    async def _call_one_by_one(self, session: Session, until: float) -> None:
        stopped: set[Lane] = set()
        for work in self._works:
            if work.lane in stopped:
                continue
            if self._lot.cancelled or (self.called and monotonic() >= until):
                break
            if not await self._call_one(work, session) and work.lane is not None:
                stopped.add(work.lane)

    async def _call_one(self, work: Work, session: Session) -> bool:
        """Whether those behind it in its lane may run."""
        if work in self._repeats:
            return self._judge_repeat(work)
        if work in self._known:
            result = self._known[work]
        elif self._failure is not None:
            result = self._failure
        else:
            result = await self._timed(work, session)
        self._judge(work, result)
        return not isinstance(result, BaseException) or self.judged.goes_on(work)

    async def _timed(self, work: Work, session: Session) -> Result:
        self.called += 1
        scope = self._tools.scope
        if scope.times is None:
            return await savepoints.call(work, scope, session, self._lot)
        began = monotonic()
        result = await savepoints.call(work, scope, session, self._lot)
        scope.times.add(monotonic() - began)
        return result

    async def _call_together(self, session: Session) -> None:
        given = self._to_be_called()
        if self._failure is not None:
            self._known.update(dict.fromkeys(given, self._failure))
        elif given and not self._lot.cancelled:
            self.called = len(given)
            results = await savepoints.call_batch(given, self._tools.scope, session, self._lot)
            self._known.update(zip(given, results, strict=True))
        for work in self._works:
            if self._known.get(work, BEHIND) is not BEHIND:
                self._judge(work, self._known[work])
        for work in self._repeats:
            self._judge_repeat(work)

    def _to_be_called(self) -> list[Work]:
        """The records of a batch that nothing is known of; not those behind one that may wait."""
        failed: set[Lane | None] = set()
        given: list[Work] = []
        for work in self._works:
            if work not in self._known:
                if work not in self._repeats and work.lane not in failed:
                    given.append(work)
            elif not isinstance(self._known[work], (Undecodable, Conflict)):
                rules.note_failed(work, self._known[work], failed)
        return given

    def _judge(self, work: Work, result: Result) -> None:
        self.judged.judge(work, result, self._tools.clock.now(), self._tools.scope.verdicts)

    def _judge_repeat(self, work: Work) -> bool:
        """The first of several with one id counts; without an outcome of that, the next unit asks.

        Whether the record has got a result.
        """
        claim, first = self._repeats[work]
        found = self._found_after(first) if first in self._held else self._found[claim.id]
        result = None if found is None else claims.verdict(claim, found)
        if result is None:
            return False
        self._judge(work, result)
        return True

    def _found_after(self, first: Work) -> Found | None:
        """What will be known of an id once this unit is committed; None: nothing."""
        kind, outcome = self._kinds().get(first.offset, ("bury", None))
        if kind == "bury":
            return None
        _, attempt, fingerprint, source = self._held[first].claim
        if kind != "park":
            return Found("done", attempt, fingerprint, source)
        attempt = outcome.envelope.attempt if outcome and outcome.envelope else attempt
        return Found("parked", attempt, fingerprint, source)

    def _kinds(self) -> dict[int, tuple[str, Outcome | None]]:
        """What became of each record, by offset; those without an outcome are left out."""
        report = self.judged.report
        kinds: dict[int, tuple[str, Outcome | None]] = dict.fromkeys(report.done, ("done", None))
        kinds.update((offset, ("done", None)) for offset, _, _ in report.sent)
        kinds.update((each.offset, (each.kind, each)) for each in report.outcomes)
        return kinds

    # What has to be durable

    def _sends(self) -> list[Write]:
        report = self.judged.report
        writes = [write for _, sends, _ in report.sent for write in sends]
        return writes + [write for each in report.outcomes for write in each.sends]

    async def _publish(self) -> None:
        # Whoever has the ids commits, also after its partition was taken away: rivals wait for it,
        # and would do again what is done by now. Without ids they do it anyway. In strict order
        # they have seen by now what waits: a copy that comes later would block nobody.
        may_be_late = self._tools.guarantee.inbox and not self._waits_in_order
        revoked = self._lot.assigned.closed and not may_be_late
        if revoked or self._lot.abandoned:
            raise RevokedError(f"{self._lot.assigned.place} was taken away")
        writes = [] if self._tools.guarantee.outbox else self._sends()
        # Hops and dead letters never wait for a relay: at worst they are written twice.
        for each in self.judged.report.outcomes:
            writes += each.writes[len(each.sends) :]
        if not writes:
            return
        publish = self._tools.publish
        if self._lot.is_async:
            await asyncio.to_thread(publish, writes)
        else:
            publish(writes)

    @property
    def _waits_in_order(self) -> bool:
        """Whether a record of it is to be parked, and others of its key have to wait for it."""
        is_strict = self._tools.scope.app.ordering == "strict"
        return is_strict and any(
            each.kind in ("park", "hop") for each in self.judged.report.outcomes
        )

    async def _send(self, session: Session) -> None:
        if self._tools.guarantee.outbox and (sends := self._sends()):
            await session.send(sends)

    async def _mark(self, session: Session) -> None:
        if not self._tools.guarantee.inbox:
            return
        marks = Marks()
        kinds = self._kinds()
        for work, (claim, before) in self._held.items():
            kind, outcome = kinds.get(work.offset, (None, None))
            if kind == "park" and outcome is not None and outcome.envelope is not None:
                marks.parked.append((claim.id, outcome.envelope.attempt))
            elif kind == "bury" or (kind is None and before is None):
                # Whoever replays a dead letter has it handled: nobody did what it asks for.
                marks.forgotten.append(claim.id)
            elif kind is not None and before is not None:
                marks.done.append(claim)
        mine = {work.offset for work in self._held}
        marks.no_longer_parked = [
            claims.inbox_id(each.envelope, self._tools.scope.app)
            for each in self.judged.report.outcomes
            if each.kind == "bury" and each.offset not in mine and each.envelope is not None
        ]
        await session.mark(marks)
