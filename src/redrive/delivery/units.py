"""Units: runs lots as units of work, and lets them wait while broker or database are away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redrive.clock import steady
from redrive.coroutines import run_sync
from redrive.delivery.claims import inbox_id
from redrive.delivery.refused_works import RefusedWorks
from redrive.delivery.refusing_topics import Waiting
from redrive.delivery.store import (
    InboxId,
    Marks,
    Store,
    StoreDownError,
    StoreNotAllowedError,
    StoreRefusedError,
    TransactionEndedError,
)
from redrive.delivery.trouble import Trouble
from redrive.delivery.unit import RevokedError, Tools, Unit, current
from redrive.errors import ContextError, PublishError, RedriveError
from redrive.processing.calls.lots import GivenUpError, Lot
from redrive.processing.outcomes.judged import Judged
from redrive.processing.outcomes.report import durable
from redrive.processing.work import Lane, Work
from redrive.tuning import (
    DATABASE_LOST_BY_CHANCE,
    EXPIRE_EVERY,
    EXPIRE_MORE,
    UNIT_ALONE_LONGEST,
    UNIT_ALONE_WAIT,
    UNIT_END_AGAIN,
    UNIT_FIRST_SIZE,
    UNIT_SECONDS,
)

if TYPE_CHECKING:
    from redrive.envelope import Envelope
    from redrive.processing.dispatcher import Dispatcher
    from redrive.processing.processor import PartitionProcessor

log: Final = logging.getLogger("redrive.delivery")


class Units:
    """Runs the lots of one process as units of work. May be used from many threads."""

    def __init__(self, tools: Tools, store: Store, *, inbox_ttl: int | None = None) -> None:
        self.trouble = Trouble(tools.clock)
        self._tools = tools
        self._store = store
        self._inbox_ttl = inbox_ttl
        self._expire_at = monotonic() + EXPIRE_EVERY
        self._pace: dict[str, float] = {}
        self._closing = Event()
        self._open: dict[Lot, tuple[_Course, Unit]] = {}
        """Of lots whose function may hang: how far they have come."""
        self._stuck: dict[Work, int] = {}
        """How long records waited last that cannot be committed even alone."""
        self._blamed = RefusedWorks(tools.topics)
        self._lost: dict[Work, int] = {}
        """How often the database was lost while they were handled, since it was last committed."""

    @property
    def stuck(self) -> int:
        """How many records wait because what they write is refused, or a rival is in the way."""
        for work in [work for work in (*self._stuck, *self._lost) if work.assigned.closed]:
            self._stuck.pop(work, None)  # somebody else has its partition by now
            self._lost.pop(work, None)
        return len(self._stuck) + len(self._blamed)

    @property
    def waiting(self) -> int:
        """How many records wait for topics that refuse what is to be written, with those behind."""
        return self._blamed.with_those_behind

    @property
    def held_up(self) -> int:
        """How many records wait that cannot be committed even alone, for another reason."""
        return len(self._stuck)

    def start_over(self) -> None:
        """Forget who waited, and for what: those of the tasks before do so no longer."""
        self._stuck.clear()
        self._lost.clear()
        self._blamed.clear()
        self._tools.topics.clear()
        self.trouble.not_allowed = None

    def refused_of(self, processor: PartitionProcessor) -> Waiting:
        """The records of one partition that wait for topics."""
        return self._blamed.of(processor)

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return self._tools.topics.reason

    def connection(self) -> Any:
        """The database connection of the unit of work under way here."""
        session = current.get(None)
        if session is None:
            raise ContextError(
                "ctx.db: no unit of work runs in this thread; use it in the handler's own thread"
                " or task, and before the handler returns"
            )
        return session.connection

    def run(self, lot: Lot, dispatcher: Dispatcher, until: float = inf) -> None:
        """Run a lot whose function is sync, and finish it."""
        run_sync(self._run(lot, dispatcher, until))

    async def run_async(self, lot: Lot, dispatcher: Dispatcher, until: float = inf) -> None:
        """Run a lot whose function is async, and finish it."""
        await self._run(lot, dispatcher, until)

    def give_up(
        self, lot: Lot, works: Sequence[Work], error: BaseException, dispatcher: Dispatcher
    ) -> None:
        """End the unit of a lot whose thread does not come back, finish the lot.

        One record has failed with the error; several are called one by one next.
        """
        run_sync(self._give_up(lot, works, error, dispatcher))

    async def _give_up(
        self, lot: Lot, works: Sequence[Work], error: BaseException, dispatcher: Dispatcher
    ) -> None:
        course, unit = self._open.pop(lot)
        unit.judged.undo()
        try:
            if len(works) > 1:  # nobody knows which one hangs: nothing counts against any of them
                dispatcher.call_alone(lot, works)
                await self._break_off(unit)
            elif await self._break_off(unit):
                again = Lot(
                    lot.scope, lot.assigned, list(works), []
                )  # the other one cannot commit any more
                await self._fail(error, again, again.works, course, dispatcher)
        except Exception:  # a mistake of ours: nothing is lost, and it is logged
            log.exception("a unit of work that hangs could not be ended")
        finally:
            dispatcher.finish(lot, course.whole)

    async def _break_off(self, unit: Unit) -> bool:
        """End a unit's transaction, however long the database is away; False: it is too late."""
        while unit.session is not None:
            try:
                await unit.session.break_off()
            except RedriveError as trouble:
                self.trouble.begins(trouble)
                if self._closing.wait(UNIT_END_AGAIN):
                    return False
            else:
                break
        return True

    def forget(self, envelopes: list[Envelope]) -> None:
        """Let these be handled when they come again: they were buried without a unit of work."""
        if self._tools.guarantee.inbox:
            app = self._tools.scope.app
            try:
                run_sync(self._forget([inbox_id(each, app) for each in envelopes]))
            except StoreNotAllowedError as error:
                self.trouble.begins(error)  # the run ends with it, as with that of a unit
                raise

    async def _forget(self, stored: list[InboxId]) -> None:
        async with self._store.session(is_async=False) as session:
            await session.mark(Marks(no_longer_parked=stored))
            await session.commit()

    def close(self) -> None:
        """Let go of the database."""
        self._closing.set()
        self._stuck.clear()
        self._blamed.clear()
        self._store.close()

    async def _run(self, lot: Lot, dispatcher: Dispatcher, until: float) -> None:
        course = _Course(lot)
        try:
            while not lot.cancelled and monotonic() < until:
                if (wait := self.trouble.wait_until()) is not None:
                    course.detain(course.begin(), wait)
                    break
                works = course.begin(self._size(lot, course))
                if not works:
                    break
                if lot.fails_with is not None:
                    await self._fail(lot.fails_with, lot, works, course, dispatcher)
                    continue
                together = self._blamed.before_the_next(works)
                course.put_back(works[len(together) :])
                if not await self._spared(lot, together, course, dispatcher):
                    await self._unit(lot, together, course, dispatcher, until)
        except GivenUpError as error:
            log.warning("%s: its result is ignored", error)
            return
        finally:
            if not lot.abandoned:  # else somebody else does, or did
                self._open.pop(lot, None)
                dispatcher.finish(lot, course.whole)
        await self._expire(is_async=lot.is_async)

    async def _unit(
        self, lot: Lot, works: list[Work], course: _Course, dispatcher: Dispatcher, until: float
    ) -> None:
        unit = Unit(self._tools, lot, works)
        if lot.may_hang:
            self._open[lot] = course, unit
        try:
            await self._in_session(unit, lot, until)
        except GivenUpError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, somebody waits and nothing is lost
            if self._undone(error, unit, works, course):
                await self._fail(error, lot, works, course, dispatcher)
        else:
            self._committed(unit, lot, works, course, dispatcher)

    async def _spared(
        self, lot: Lot, works: list[Work], course: _Course, dispatcher: Dispatcher
    ) -> bool:
        """Whether the first of these needs no call: it waits for a topic, or fails without."""
        blame = self._blamed.first(works)
        if blame is None:
            return False
        ask = self._blamed.until
        wait = await asyncio.to_thread(ask, blame) if lot.is_async else ask(blame)
        if wait is None and blame.fails_with is None:
            return False
        course.put_back(works[1:])
        if wait is not None:
            course.detain(works[:1], wait)
        elif blame.fails_with is not None:
            await self._fail(blame.fails_with, lot, works[:1], course, dispatcher)
        return True

    def _undone(self, error: Exception, unit: Unit, works: list[Work], course: _Course) -> bool:
        """Nothing of a unit happened: decide who has to wait. True: its only record has failed."""
        if isinstance(error, RevokedError):
            course.give_up()
        elif self._is_outage(error, unit, works):
            # Nobody can do anything about it: all wait, and nothing counts against any record.
            course.detain([*works, *course.begin()], self.trouble.begins(error))
        elif isinstance(error, PublishError) and self._blamed.note(
            error, unit.judged.report, works
        ):
            course.put_back(works)  # they are spared, and the others tried again without them
        elif len(works) > 1:
            course.one_by_one(works)  # so that one of them does not hold the others
        elif isinstance(error, (StoreRefusedError, TransactionEndedError)):
            # What it wrote cannot be committed, or what it committed on its own cannot be undone.
            return True
        else:
            if not isinstance(error, RedriveError):  # a mistake of ours: it is logged
                log.error("a unit of work failed", exc_info=error)
            self._stand_aside(error, works[0], course)
        return False

    def _is_outage(self, error: Exception, unit: Unit, works: list[Work]) -> bool:
        """Whether anybody else would have fared the same."""
        if isinstance(error, PublishError):
            return error.outage
        if isinstance(error, StoreNotAllowedError):
            return True
        if not isinstance(error, StoreDownError):
            return False
        if unit.session is None:
            return True
        # It was there when the unit began. That happens to anybody, but not again and again: a
        # handler can bring it about, by being idle for longer than the database allows, say.
        for work in works:
            self._lost[work] = self._lost.get(work, 0) + 1
        return max(self._lost[work] for work in works) <= DATABASE_LOST_BY_CHANCE

    async def _in_session(self, unit: Unit, lot: Lot, until: float) -> None:
        async with self._store.session(is_async=lot.is_async) as session:
            await unit.run(session, until)

    def _committed(
        self, unit: Unit, lot: Lot, works: list[Work], course: _Course, dispatcher: Dispatcher
    ) -> None:
        self.trouble.is_over()
        dispatcher.settle(lot, durable(unit.judged.report))
        course.committed(works, unit.judged)
        if unit.called:
            taken = unit.seconds / unit.called
            self._pace[lot.handler.topic] = (self._pace.get(lot.handler.topic, taken) + taken) / 2
        self._blamed.committed(works)
        if self._stuck or self._lost:
            for work in works:
                self._stuck.pop(work, None)
                self._lost.pop(work, None)

    def _size(self, lot: Lot, course: _Course) -> int:
        """As many as will be handled in the time that a unit may take."""
        if course.alone:
            return 1
        if lot.in_one_call:
            return len(lot.works)
        pace = self._pace.get(lot.handler.topic)
        if pace is None:
            return UNIT_FIRST_SIZE
        return max(1, int(UNIT_SECONDS / pace)) if pace else len(lot.works)

    def _stand_aside(self, error: Exception, work: Work, course: _Course) -> None:
        """Let a record wait that cannot be committed even alone; the others go on."""
        wait = min(2 * self._stuck.get(work, UNIT_ALONE_WAIT // 2), UNIT_ALONE_LONGEST)
        self._stuck[work] = wait
        log.warning(
            "%s: %s; it stays where it is, and is tried again in %d ms",
            work.record.place,
            error,
            wait,
        )
        course.detain([work], steady(self._tools.clock) + wait)

    async def _fail(
        self,
        error: BaseException,
        lot: Lot,
        works: list[Work],
        course: _Course,
        dispatcher: Dispatcher,
    ) -> None:
        """Let records fail without calling anybody."""
        unit = Unit(self._tools, lot, works)
        unit.have_failed(error)
        try:
            await self._in_session(unit, lot, inf)
        except Exception as trouble:  # noqa: BLE001 -- as for every unit
            if self._undone(trouble, unit, works, course):
                self._stand_aside(trouble, works[0], course)
        else:
            self._committed(unit, lot, works, course, dispatcher)

    async def _expire(self, *, is_async: bool) -> None:
        if self._inbox_ttl is None or monotonic() < self._expire_at:
            return
        self._expire_at = monotonic() + EXPIRE_EVERY
        try:
            more = await self._store.expire(older_than=self._inbox_ttl, is_async=is_async)
        except RedriveError as error:
            log.warning("expired ids could not be deleted: %s", error)
        else:
            if more:
                self._expire_at = monotonic() + EXPIRE_MORE


class _Course:
    """How far a lot has come."""

    def __init__(self, lot: Lot) -> None:
        self.whole = Judged()
        self.alone = False
        """Whether its records are tried one by one."""
        self._lot = lot
        self._stopped: set[Lane] = set()

    def begin(self, most: int | None = None) -> list[Work]:
        """The records of the next unit; all that may be tried, by default."""
        while works := self._lot.begin(most):
            may_run = [work for work in works if work.lane not in self._stopped]
            if may_run:
                return may_run
        return []

    def put_back(self, works: list[Work]) -> None:
        """These have not begun after all, and come next."""
        self._lot.todo.extendleft(reversed(works))

    def one_by_one(self, works: list[Work]) -> None:
        """Try these again, each alone, and those behind them."""
        self.alone = True
        self.put_back(works)

    def committed(self, works: list[Work], judged: Judged) -> None:
        """Go on behind these; who has no outcome keeps those behind it in its lane waiting."""
        self.whole.add(judged)
        # Those behind one that is given back are read again with it, though it is settled.
        waiting = (*judged.parked, *(work for work, _ in judged.report.given_back))
        self._stopped.update(work.lane for work in waiting if work.lane is not None)
        self._pass(works)

    def detain(self, works: list[Work], until: int) -> None:
        """Let these wait, for no fault of theirs, and go on behind them."""
        for work in works:
            self.whole.detain(work, until)
        self._pass(works)

    def give_up(self) -> None:
        """Try no more of it."""
        self._lot.todo.clear()

    def _pass(self, works: list[Work]) -> None:
        for work in works:
            if work.lane is not None and work.offset not in self.whole.settled:
                self._stopped.add(work.lane)
