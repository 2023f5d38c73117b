"""Scope: what all calls of one process share."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from redrive import ids
from redrive.errors import ContextError
from redrive.processing.order.lanes import LongLanes
from redrive.processing.outcomes.causes import Tally
from redrive.processing.outcomes.dead_brake import DeadBrake
from redrive.processing.outcomes.envelopes import Envelopes
from redrive.processing.outcomes.guards import Guards, any_guarded
from redrive.processing.outcomes.verdicts import Verdicts
from redrive.processing.work import Result, Work
from redrive.record import IdentifiedWrite, Write
from redrive.threads import OnDeath

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.envelope import Envelope
    from redrive.parked_rules import ParkedRule
    from redrive.ports import Clock


class Times(Protocol):
    """Counts how long handlers take."""

    def add(self, seconds: float, count: int = 1) -> None:
        """Count one call, or several that took as long."""
        ...

    def add_all(self, seconds: Sequence[float]) -> None:
        """Count several calls."""
        ...


class Database(Protocol):
    """What calls and burials need of units of work: their database."""

    def connection(self) -> Any:
        """The database connection of the unit of work under way here."""
        ...

    def forget(self, envelopes: list[Envelope]) -> None:
        """Let these be handled when they come again: they were buried without a unit of work."""
        ...


Acknowledge = Callable[[Work, object, Result], None]
"""A record, the context of the call that acknowledges it, and what it says."""


class Scope:
    """What all calls of one process share."""

    def __init__(
        self,
        app: App,
        topic_ids: Mapping[str, str],
        resources: SimpleNamespace | None = None,
        clock: Clock | None = None,
        timer: Callable[[], float] = monotonic,
        *,
        guarded: bool = False,
        guards: type[Guards] = Guards,
    ) -> None:
        """`timer` tells the seconds in which calls are timed, and is never set.

        With `guarded` the guards of handlers, and `stop_on_dead=`, are heeded: the dispatcher has
        to be given the guards, which are of that kind.
        """
        self.app = app
        self.timer = timer
        self._clock = clock
        self.topic_ids = topic_ids
        self.resources = resources or SimpleNamespace()
        self.log = logging.getLogger(f"redrive.app.{app.name}")
        self.sent_to: set[str] = set()
        """The topics that handlers have sent to so far."""
        self.causes = Tally(app)
        """Why records fail, until somebody logs it."""
        self.envelopes = Envelopes(app, topic_ids)
        self.guards = self._guards(app, guards) if guarded else None
        """Whether failures are an outage; None: no handler has a guard."""
        self.brake = self._brake(app) if guarded else None
        """Ends the run if most records would be buried; None: nobody wants that."""
        self.verdicts = Verdicts(
            app,
            self.envelopes,
            self.causes,
            self.steady,
            guards=self.guards,
            brake=self.brake,
        )
        self.units: Database | None = None
        """Units of work, where the delivery has a database; None: calls need none."""
        self.threads = 0
        """How many threads run handlers; 0: that says nothing, as on an event loop."""
        self.long_lanes = LongLanes(app.concurrency)
        self.begin_thread: Callable[[], None] = _nothing
        """Called first by each thread that runs handlers."""
        self.on_death: OnDeath = _raise
        """Gets the error that ended a thread or task that runs handlers: the engine ends by it."""
        self.trying = False
        """Whether calls are only tried, without effects: `redrive dead try`."""
        self.acknowledge: Acknowledge = _not_running
        self.consumer: Callable[[Work], Any] = _no_consumer
        self.giving_up = Lock()
        """Held while it is decided whether a call has returned in time, or is given up."""
        self.parked_rules: tuple[ParkedRule, ...] = ()
        """What operators have said about parked records, oldest first."""
        self.times: Times | None = None
        """Counts how long handlers take; None: nobody does."""
        self.lateness: deque[int] = deque(maxlen=100_000)
        """Milliseconds between due time and handler start, of records that were parked."""

    def _guards(self, app: App, kind: type[Guards]) -> Guards | None:
        handlers = app.handlers.values()
        if not any_guarded(handlers):
            return None
        return kind(handlers, app.concurrency, self.causes.fingerprint, self.steady)

    def _brake(self, app: App) -> DeadBrake | None:
        if app.stop_on_dead is None:
            return None

        def stop(error: BaseException) -> None:
            self.on_death(error)  # whoever it is by then

        return DeadBrake(app.stop_on_dead, stop)

    # Time

    def steady(self, time: int) -> int:
        """A time of the clock in time that nobody sets: waits are counted in that."""
        return time if self._clock is None else time - self._clock.was_set()

    def on_the_clock(self, steady: int) -> int:
        """When that will be, by the clock."""
        return steady if self._clock is None else steady + self._clock.was_set()

    def starts(self, work: Work) -> None:
        """Note how late the handler of a record that was parked starts."""
        if work.due is not None and self._clock is not None:
            self.lateness.append(self._clock.now() - work.due)

    # What handlers ask for

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
        if not self.app.guarantee.outbox:
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


def _nothing() -> None:
    pass


def _raise(error: BaseException) -> None:
    raise error


def _not_running(work: Work, _context: object, _result: Result) -> None:
    raise ContextError(f"{work.record.place} was acknowledged before its app was running")


def _no_consumer(_: Work) -> Any:
    raise ContextError(
        "ctx.consumer: there is no consumer to ask here; it exists on the worker only"
        " (--engine worker)"
    )
