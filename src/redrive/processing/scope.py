"""Scope: what all records of one process share while they are handled."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from threading import Lock, get_ident
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from redrive import envelope as envelopes
from redrive import ids
from redrive.envelope import Envelope
from redrive.errors import ContextError, RedriveError
from redrive.guarantees import GUARANTEES
from redrive.handler import name_of
from redrive.processing.causes import Tally
from redrive.processing.lanes import LongLanes
from redrive.processing.work import Result, Work
from redrive.record import IdentifiedWrite, Record, Write
from redrive.threads import OnDeath, raise_ctrl_c

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Clock
    from redrive.processing.context import Context
    from redrive.processing.dispatcher import Dispatcher
    from redrive.processing.lots import Lot


class UnderWay(NamedTuple):
    """A call of a handler that has a time-out."""

    lot: Lot
    works: Sequence[Work]
    """The records of the call; all before them in the lot have their results."""
    since: float
    """On the monotonic clock."""


class GivenUpError(RedriveError):
    """A call came back after it was given up: its records were judged, and are not its own."""


class Times(Protocol):
    """Counts how long handlers take."""

    def add(self, seconds: float, count: int = 1) -> None:
        """Take note of one call, or of several that took as long."""
        ...

    def add_all(self, seconds: Sequence[float]) -> None:
        """Take note of several calls."""
        ...


class Units(Protocol):
    """Runs lots as units of work: a database transaction around the calls of handlers."""

    def run(self, lot: Lot, dispatcher: Dispatcher, until: float = inf) -> None:
        """Run a lot whose function is sync, and finish it."""
        ...

    async def run_async(self, lot: Lot, dispatcher: Dispatcher, until: float = inf) -> None:
        """Run a lot whose function is async, and finish it."""
        ...

    def connection(self) -> Any:
        """The database connection of the unit of work under way here."""
        ...

    def give_up(
        self, lot: Lot, works: Sequence[Work], error: BaseException, dispatcher: Dispatcher
    ) -> None:
        """End the unit of a lot whose thread does not come back, fail these, finish the lot."""
        ...

    def forget(self, envelopes: list[Envelope]) -> None:
        """Let these be handled when they come again: they were buried without a unit of work."""
        ...


Acknowledge = Callable[[Work, "Context", Result], None]
"""A record, the context of the call that speaks, and what it says."""


class Scope:
    """What all records of one process share while they are handled."""

    def __init__(
        self,
        app: App,
        topic_ids: Mapping[str, str],
        resources: SimpleNamespace | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.app = app
        self._clock = clock
        self.topic_ids = topic_ids
        self.resources = resources or SimpleNamespace()
        self.log = logging.getLogger(f"redrive.app.{app.name}")
        self.sent_to: set[str] = set()
        """The topics that handlers have sent to so far."""
        self.causes = Tally(app)
        """Why records fail, until somebody takes it to tell the operator."""
        self.units: Units | None = None
        """How lots run, where the delivery has a database; None: by themselves."""
        self.threads = 0
        """How many threads run handlers; 0: that says nothing, as on an event loop."""
        self.long_lanes = LongLanes(app.concurrency)
        self.begin_thread: Callable[[], None] = _as_it_is
        """Called first by each thread that runs handlers."""
        self.on_death: OnDeath = _die_of_it
        """Takes what ended a thread or task that runs handlers: the engine ends with that cause."""
        self.trying = False
        """Whether calls are only tried, without effects: `redrive dead try`."""
        self.has_outbox = GUARANTEES[app.delivery].outbox
        self.acknowledge: Acknowledge = _nobody_listens
        self.consumer: Callable[[Work], Any] = self._no_consumer
        self.under_way: dict[int, UnderWay] = {}
        """By thread, of handlers with a time-out: which call it is in."""
        self._giving_up = Lock()
        self.times: Times | None = None
        """Where it is counted how long handlers take; None: nowhere."""
        self.lateness: deque[int] = deque(maxlen=100_000)
        """Milliseconds between due time and handler start, of records that were parked."""

    @property
    def sent_without_unit(self) -> Collection[str]:
        """The topics that handlers have sent to so far, where no unit of work writes to them."""
        return self.sent_to if self.units is None else ()

    def connection(self) -> Any:
        """The database connection of the unit of work under way."""
        if self.units is None:
            raise ContextError(
                f"ctx.db: the app {self.app.name!r} has the delivery {self.app.delivery!r}, which"
                ' has no database transaction; choose "idempotent", "outbox" or'
                ' "idempotent+outbox", or open a connection of your own'
            )
        return self.units.connection()

    def identified(self, write: Write, message_id: object) -> IdentifiedWrite:
        """A message with an id of the sender's own; only an outbox can promise to send it once."""
        if not self.has_outbox:
            raise ContextError(
                f"ctx.send(id=): the app {self.app.name!r} has the delivery {self.app.delivery!r},"
                ' which has no outbox that would remember the id; choose "outbox" or'
                ' "idempotent+outbox", or send the id in a header'
            )
        given = ids.as_text(message_id)
        if given is None:
            raise ContextError(f"ctx.send({write.topic!r}, id=...): the id is empty")
        identified = IdentifiedWrite(*write)
        identified.id = given
        return identified

    def _no_consumer(self, _: Work) -> Any:
        raise ContextError(
            "ctx.consumer: there is no consumer to ask here; it exists on the worker only"
            " (--engine worker)"
        )

    def watch(self, lot: Lot, works: Sequence[Work]) -> None:
        """Take note that this thread calls a function that may hang."""
        self.under_way[get_ident()] = UnderWay(lot, works, monotonic())

    def came_back(self, lot: Lot) -> None:
        """Take note that the function has returned; GivenUpError if it was given up before."""
        with self._giving_up:
            self.under_way.pop(get_ident(), None)
            if lot.abandoned:
                raise GivenUpError(f"the handler of {lot.handler.topic!r} came back too late")

    def take_over(self, thread: int, call: UnderWay) -> bool:
        """Give a call up; False: it has just come back."""
        with self._giving_up:
            if self.under_way.get(thread) is not call or call.lot.abandoned:
                return False
            call.lot.abandoned = True
            return True

    def steady(self, time: int) -> int:
        """A time of the clock in time that nobody sets: what waits for a while waits in that."""
        return time if self._clock is None else time - self._clock.was_set()

    def on_the_clock(self, steady: int) -> int:
        """When that will be, by the clock."""
        return steady if self._clock is None else steady + self._clock.was_set()

    def starts(self, work: Work) -> None:
        """Take note that the handler of a record that was parked starts now."""
        if work.due is not None and self._clock is not None:
            self.lateness.append(self._clock.now() - work.due)

    def envelope(self, work: Work) -> Envelope:
        """The envelope of a work; made when first asked for."""
        if work.envelope is None:
            work.envelope = envelopes.fresh(
                work.record,
                app=self.app.name,
                message_id=self.message_id(work),
                now=work.received,
                id_scope=work.handler.id_scope,
            )
        return work.envelope

    def known(self, work: Work) -> Envelope:
        """The same for those who only report on it: without an id it has that of its place."""
        try:
            return self.envelope(work)
        except Exception:  # noqa: BLE001 -- the user's id function may raise anything
            return self.origin_envelope(work.record, work.received)

    def origin_envelope(self, record: Record, now: int) -> Envelope:
        """The envelope of a record whose own says nothing, or cannot be read."""
        return envelopes.fresh(
            record, app=self.app.name, message_id=self.origin_id(record), now=now
        )

    def message_id(self, work: Work) -> str:
        """The record's id: the application's, or derived from its origin where none was chosen."""
        chosen = work.handler.id
        if chosen is None:
            return self.origin_id(work.record)
        given = ids.as_text(_chosen_id(chosen, work.record))
        if given is not None:
            return given
        if work.record.value is None or ids.is_optional(chosen):  # a tombstone has no fields
            return self.origin_id(work.record)
        raise ValueError(
            f"{work.record.place} has no id: {name_of(chosen)} returned nothing for it. Is the name"
            " right? If records may come without an id, write id=optional(...)"
        )

    def origin_id(self, record: Record) -> str:
        """The id of a record that brings none."""
        return ids.from_origin(
            self.topic_ids.get(record.topic, record.topic), record.partition, record.offset
        )


def _chosen_id(chosen: ids.IdOf, record: Record) -> ids.MessageId:
    """The id; where the function raises what is no Exception, an error that is one says so."""
    try:
        return chosen(record)
    except Exception:
        raise
    except BaseException as error:
        raise_ctrl_c(error)
        raise RedriveError(
            f"id= of the handler of {record.topic!r} raised {type(error).__name__} for"
            f" {record.place}: {envelopes.text_of(error)}"
        ) from error


def _as_it_is() -> None:
    pass


def _die_of_it(error: BaseException) -> None:
    raise error


def _nobody_listens(work: Work, _context: Context, _result: Result) -> None:
    raise ContextError(f"{work.record.place} was acknowledged before its app was running")
