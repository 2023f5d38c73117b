"""Worker: a running member of the app's consumer group, and how to stop it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Unpack

from redrive.clock import WallClock
from redrive.config import Settings, SettingsArguments, load_settings
from redrive.delivery.equipping import equip
from redrive.engines import preflight
from redrive.engines.cause_log import CauseLog
from redrive.engines.figures import Figures
from redrive.engines.words import Lane, unfinished
from redrive.engines.worker.assignment import Assignment
from redrive.engines.worker.beginnings import Beginnings
from redrive.engines.worker.delivering import Delivering, FlushDelivering
from redrive.engines.worker.figures import Counting
from redrive.engines.worker.group_member import GroupMember
from redrive.engines.worker.looking import Looking
from redrive.engines.worker.loop import NameInUseError
from redrive.engines.worker.membership import Membership
from redrive.engines.worker.one_core import OneCore
from redrive.engines.worker.options import Options
from redrive.engines.worker.rejoining import Rejoining
from redrive.engines.worker.transacting import TransactionDelivering
from redrive.errors import RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.groups import members_of
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.loading import load_app
from redrive.processing.collector import tune_collector
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.executors import executor_for
from redrive.processing.long_running import LongRunning
from redrive.processing.resources import Resources
from redrive.processing.scope import Scope

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.worker.partition import Partition
    from redrive.record import TopicPartition

log: Final = logging.getLogger("redrive.worker")

_NAME_WAIT: Final = 1.0
_CLOSE_WAIT: Final = 1.0
"""Seconds for handlers that are over time already."""
_REAP_EVERY: Final = 0.1
_LIVE_WITHIN: Final = 10.0


class WorkerError(RedriveError):
    """A worker ended with an error; the message is the sentence that says why."""


class Worker:
    """One process of the app's consumer group."""

    def __init__(
        self, app: App, settings: Settings, options: Options, *, inbox_ttl: int | None = None
    ) -> None:
        self.app = app
        self.figures = Figures()
        self.counting = Counting(self.figures)
        self._options = options
        self._settings = settings
        self._error: BaseException | None = None
        self.left_behind = False
        """Whether handlers still ran when it ended."""
        self._reaped = monotonic()
        self._causes = CauseLog(app.name)
        self._refusal = ""
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._clock = WallClock()
        self._admin = Admin(settings)
        self._log = KafkaLog(settings, app.name, admin=self._admin)
        self._progress = KafkaProgress(settings, app.name, admin=self._admin)
        self._publisher = KafkaPublisher(settings)
        self._topics = [*app.handlers, *self._waiting_topics()]
        topic_ids: dict[str, str] = {}
        self._scope = Scope(app, topic_ids, clock=self._clock)
        self._scope.times = self.counting.handling
        self._scope.on_death = self._on_death
        self._units = equip(
            self._scope, settings, self._publisher, self._clock, inbox_ttl=inbox_ttl
        )
        self._dispatcher = Dispatcher(self._clock, app.concurrency, self._sink)
        self._long_running = LongRunning(self._dispatcher)
        self._executor = executor_for(app, self._scope, Resources(app))
        self._delivering = self._make_delivering()
        self._beginnings = Beginnings(
            app,
            settings,
            self._log,
            self._progress,
            start_from=options.start_from,
            topic_ids=topic_ids,
            on_loss=self._on_loss,
        )
        self._assignment = Assignment(
            app=app,
            topics=self._topics,
            scope=self._scope,
            dispatcher=self._dispatcher,
            delivering=self._delivering,
            beginnings=self._beginnings,
            counting=self.counting,
            revoke_wait=options.revoke_wait / 1000,
            on_trouble=self._note_error,
            on_postponed=self._on_postponed,
        )
        self._membership = Membership(app.name, options.instance, dynamic=options.dynamic)
        self.rejoining = Rejoining(
            self._membership.instance if options.protocol == "classic" else None,
            self._topics,
            self._assignment,
            members=lambda: members_of(self._admin, app.name),
            rejoin=lambda: self._member.loop.ask(self._member.rejoin),
        )
        self._looking = Looking(
            app=app,
            topics=self._topics,
            kafka_log=self._log,
            progress=self._progress,
            assignment=self._assignment,
            scope=self._scope,
            counting=self.counting,
            clock=self._clock,
            until=options.until,
            rejoining=self.rejoining,
            on_death=self._on_death,
            waiting=self._waiting_for_topics,
            on_topics=self._on_topics,
        )
        self._one_core: OneCore | None = None
        self._thread = threading.Thread(target=self._run, name="redrive-poll", daemon=True)

    # What users do

    def start(self) -> None:
        """Open the resources, join the group and begin."""
        tune_collector()
        if self._options.one_core:
            self._one_core = OneCore()
            self._scope.begin_thread = self._one_core.begin_thread
        try:
            self._executor.start(self._dispatcher)
        except BaseException:
            self._leave_core()
            raise
        try:
            self._member = self._make_member()
            self._looking.start()
        except BaseException:
            self._close_all()
            raise
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Begin nothing new, let what runs end, commit and leave."""
        self._stopping.set()
        self._ended.wait(timeout)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; its error is raised."""
        ended = self._ended.wait(timeout)
        self.check()
        return ended

    def check(self) -> None:
        """Raise the error that ended it, if one did."""
        if self._ended.is_set() and self._error is not None:
            if isinstance(self._error, RedriveError):
                raise self._error
            raise WorkerError(f"the worker ended: {self._error!r}") from self._error

    def status(self, lane: Lane) -> dict[str, Any]:
        """What is ahead of the progress in a lane, as last seen."""
        status = self._looking.status(lane)
        if self._units is not None and self._units.trouble.text:
            return {**status, "trouble": self._units.trouble.text}
        return status

    def not_live(self) -> str:
        """Why it should be started again; empty: it need not be."""
        if self._ended.is_set():
            return "it has ended"
        if self._error is not None:
            return f"it ends: {self._error}"
        silence = monotonic() - self._member.loop.polled_at
        return f"it has not polled for {silence:.0f} s" if silence > _LIVE_WITHIN else ""

    @property
    def ready(self) -> bool:
        """Whether it is part of the group, and partitions were given to it."""
        return not self.not_live() and self._assignment.settled and not self.stopping

    @property
    def stopping(self) -> bool:
        """Whether nothing new begins any more."""
        return self._stopping.is_set()

    def oldest_handler(self) -> float:
        """For how many seconds the oldest of the handlers that run has been running; 0: none is."""
        return self._long_running.seconds()

    @property
    def assigned(self) -> int:
        """How many partitions it has."""
        return len(self._assignment.partitions)

    @property
    def refused(self) -> int:
        """How many records stay where they are, because what was to be written was refused."""
        return self._delivering.refused + (0 if self._units is None else self._units.stuck)

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return self._delivering.refusal or ("" if self._units is None else self._units.refusal)

    def _waiting_for_topics(self) -> int:
        """How many records wait for topics that refuse writes, with those behind them."""
        return self._delivering.refused + (0 if self._units is None else self._units.waiting)

    # How it runs

    def _run(self) -> None:
        try:
            self._member.join()
            while not self._must_end():
                try:
                    self._member.loop.step()
                except NameInUseError as error:
                    self._join_anew(error)
                self._reap()
            if self._error is None and not self._member.loop.drain(
                self._options.drain / 1000, self._reap
            ):
                log.warning("handlers still ran when the time to stop was over: they run again")
                self._assignment.revoke_wait = 0.0
            if self._looking.over.is_set() and self.refused:  # it was to end with all of it done
                self._note_error(WorkerError(unfinished(self.refused, self.refusal)))
        except BaseException as error:
            self._note_error(error)
            log.debug("the worker ended", exc_info=error)
        finally:
            self._close_all()
            self._ended.set()  # whatever went wrong on the way: somebody waits for it

    def _join_anew(self, error: NameInUseError) -> None:
        """By a client of its own, as the one that was refused is of no more use.

        The new protocol refuses a name until its last holder's session has timed out.
        """
        if str(error) != self._refusal:
            self._refusal = str(error)
            log.warning("%s", error)
        self._member.close()
        for each in list(self._assignment.partitions.values()):
            self._assignment.close(each)
        self._stopping.wait(_NAME_WAIT)
        self._member = self._make_member()
        self._member.join()

    def _reap(self) -> None:
        now = monotonic()
        if now - self._reaped > _REAP_EVERY:
            self._reaped = now
            self.counting.hung += self._executor.give_up_hung()
            if (error := self._publisher.not_allowed) is not None:
                self._note_error(error)
            self._take_causes()
            self._long_running.look()

    def _take_causes(self) -> None:
        seen = self._scope.causes.take()
        self.figures.count_dead(seen, self.app.handlers)
        self._causes.take(seen)

    def _must_end(self) -> bool:
        return self._stopping.is_set() or self._error is not None or self._looking.over.is_set()

    def _close_all(self) -> None:
        """Close everything, each even if another cannot be closed."""
        for close in (
            self._dispatcher.pause,
            self._looking.close,
            self._close_member,
            self._close_executor,
            self._delivering.close,
            *(() if self._units is None else (self._units.close,)),
            self._tell_causes,
            self._looking.look_at_the_end,
            self._log.close,
            self._membership.close,
            self._leave_core,
        ):
            try:
                close()
            except BaseException as error:  # a resource may raise anything
                self._note_error(error)
                log.debug("closing failed", exc_info=error)

    def _close_executor(self) -> None:
        self.left_behind = True  # unless it says otherwise
        self.left_behind = not self._executor.close(_CLOSE_WAIT)

    def _tell_causes(self) -> None:
        self._take_causes()
        self._causes.sum_up()

    def _leave_core(self) -> None:
        if self._one_core is not None:
            self._one_core.close()

    def _close_member(self) -> None:
        if hasattr(self, "_member"):
            # One that was stopped may soon be back by its name, one that has ended by itself not.
            self._member.close(for_good=self._error is None and self._looking.over.is_set())

    def _note_error(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error

    def _on_death(self, error: BaseException) -> None:
        """A thread has ended by an error that it should have contained: nothing goes on without."""
        name = threading.current_thread().name
        log.error("the thread %s ended by %r: the worker ends", name, error, exc_info=error)
        self._note_error(error)

    def _on_loss(self, told: list[str]) -> None:
        for each in told:
            log.warning("%s; goes on with what is there", each)
        self._looking.note_lost(told)

    def _sink(self, processor: Any, report: Any) -> None:
        self._delivering.take(processor, report)

    def _make_delivering(self) -> Delivering:
        if self.app.delivery == "transaction":
            return TransactionDelivering(self.counting, self._on_failed_transaction, self._on_death)
        sent_to = self._scope.sent_without_unit
        return FlushDelivering(self._publisher, self._clock, self.counting, self._on_death, sent_to)

    def _make_member(self) -> GroupMember:
        return GroupMember(
            app=self.app,
            settings=self._settings,
            options=self._options,
            name=self._membership.instance,
            topics=self._topics,
            scope=self._scope,
            dispatcher=self._dispatcher,
            delivering=self._delivering,
            assignment=self._assignment,
            beginnings=self._beginnings,
            counting=self.counting,
            clock=self._clock,
            on_trouble=self._note_error,
            on_death=self._on_death,
            is_over=self._must_end,
        )

    def _waiting_topics(self) -> list[str]:
        """The delay topics; also those that no policy uses any more, as records may wait there."""
        found = self._log.names(f"{self.app.name}.retry.")
        old = [name for name in found if self.app.delay_of(name) is not None]
        return sorted({*self.app.delay_topics, *old})

    # A partition that has to begin anew

    def _on_topics(self, ids: Mapping[str, str]) -> None:
        self._member.reopening.look_at(ids)

    def _on_failed_transaction(self, partition: Partition, error: RedriveError) -> None:
        if isinstance(error, NotAllowedError):
            self._note_error(error)
            return
        log.warning("%s: %s", partition.place, error)
        self._member.loop.ask(lambda: self._member.reopening.set_aside([partition]))

    def _on_postponed(self, places: list[TopicPartition]) -> None:
        self._member.reopening.later(places)


def start(
    target: str, /, *, options: Options | None = None, **arguments: Unpack[SettingsArguments]
) -> Worker:
    """Run an app in this process: `start("shop:app")`. Settings as for every engine."""
    app = load_app(target)
    app.check("worker")
    settings = load_settings(arguments, app.settings)
    ready = preflight.check(app, settings, target, engine="worker")
    worker = Worker(app, settings, options or Options(), inbox_ttl=ready.inbox_ttl)
    worker.start()
    return worker
