"""Worker: a running member of the app's consumer group, and how to stop it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Unpack

from redrive.clock import WallClock
from redrive.config import Settings, SettingsArguments
from redrive.delivery.equipping import equip
from redrive.engines import data_loss, preflight
from redrive.engines.ahead import Ahead
from redrive.engines.figures import Figures
from redrive.engines.rules_watch import RulesWatch
from redrive.engines.waiting_rooms import check_end
from redrive.engines.words import LaneName, unfinished
from redrive.engines.worker.assignment import Assignment
from redrive.engines.worker.counting import Counting
from redrive.engines.worker.delivery_thread import DeliveryThread, FlushThread
from redrive.engines.worker.fate import Fate
from redrive.engines.worker.group_member import GroupMember
from redrive.engines.worker.lag import LagMonitor
from redrive.engines.worker.lifecycle import Lifecycle
from redrive.engines.worker.membership import Membership
from redrive.engines.worker.one_core import OneCore
from redrive.engines.worker.options import Options, check_revoke_wait
from redrive.engines.worker.rejoining import Rejoining
from redrive.engines.worker.retention_watch import RetentionWatch
from redrive.engines.worker.rooms import Rooms
from redrive.engines.worker.start_offsets import StartOffsets
from redrive.engines.worker.subscription import Subscription
from redrive.engines.worker.transaction_thread import TransactionThread
from redrive.engines.worker.upkeep import Upkeep
from redrive.errors import DataLossError, RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.groups import members_of
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.loading import target_of
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.collector import tune_collector
from redrive.processing.execution.executors import executor_for
from redrive.processing.execution.long_running import LongRunning
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.guard_log import GuardSeen, words_of
from redrive.tuning import CLOSE_WAIT, LIVE_WITHIN

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.worker.partition import Partition
    from redrive.parked_rules import ParkedRule
    from redrive.record import TopicPartition

log: Final = logging.getLogger("redrive.worker")


class Worker:
    """One process of the app's consumer group."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        options: Options,
        target: str,
        *,
        inbox_ttl: int | None = None,
    ) -> None:
        self.app = app
        self.figures = Figures()
        self.counting = Counting(self.figures)
        self._options = options
        self._settings = settings
        self._fate = Fate()
        self.ended = self._fate.ended
        self.left_behind = False
        """Whether it ended without waiting for some handlers or writes."""
        self._clock = WallClock()
        self._admin = Admin(settings)
        self._kafka_log = KafkaLog(settings, app.name, admin=self._admin)
        self._progress = KafkaProgress(settings, app.name, admin=self._admin)
        self._publisher = KafkaPublisher(settings)
        self._topics = Subscription(app, self._kafka_log.names)
        topic_ids: dict[str, str] = {}
        self._scope = Scope(app, topic_ids, clock=self._clock, guarded=True)
        self._scope.times = self.counting.handling
        self._scope.on_death = self._fate.on_death
        self._units = equip(
            self._scope, settings, self._publisher, self._clock, inbox_ttl=inbox_ttl
        )
        self._dispatcher = Dispatcher(self._clock, app.concurrency, self._sink, self._scope.guards)
        self._rules = RulesWatch(app, self._kafka_log, on_change=self._take_rules)
        self._long_running = LongRunning(self._dispatcher, self._scope.timer)
        self.executor = executor_for(app, self._scope, Resources(app), self._units)
        self._upkeep = Upkeep(
            scope=self._scope,
            executor=self.executor,
            publisher=self._publisher,
            long_running=self._long_running,
            counting=self.counting,
            fate=self._fate,
            units=self._units,
        )
        self._delivering = self._make_delivering()
        self._start_offsets = StartOffsets(
            app,
            settings,
            self._kafka_log,
            self._progress,
            start_from=options.start_from,
            topic_ids=topic_ids,
            on_loss=self._on_loss,
        )
        self.assignment = Assignment(
            app=app,
            topics=self._topics,
            scope=self._scope,
            dispatcher=self._dispatcher,
            delivering=self._delivering,
            start_offsets=self._start_offsets,
            counting=self.counting,
            rooms=Rooms(app, self._topics, self._kafka_log, options.max_in_flight),
            revoke_wait=options.revoke_seconds,
            on_trouble=self._fate.note,
            on_postponed=self._on_postponed,
            meanwhile=lambda: self.lifecycle.attend(),  # noqa: PLW0108 -- it is made later
        )
        self._membership = Membership(app.name, options.instance, dynamic=options.dynamic)
        self.rejoining = Rejoining(
            self._membership.instance if options.protocol == "classic" else None,
            self._topics,
            self.assignment,
            members=lambda: members_of(self._admin, app.name),
            rejoin=lambda: self.member.loop.ask(self.member.rejoin),
        )
        self._lag = LagMonitor(
            app=app,
            topics=self._topics,
            kafka_log=self._kafka_log,
            progress=self._progress,
            assignment=self.assignment,
            scope=self._scope,
            counting=self.counting,
            clock=self._clock,
            until=options.until,
            rejoining=self.rejoining,
            rules=self._rules,
            retention=RetentionWatch(
                self.guards,
                self._dispatcher.oldest_waiting,
                KafkaTopics(settings, admin=self._admin).visible_settings,
                self._clock,
            ),
            on_death=self._fate.on_death,
            waiting=self._waiting_for_topics,
            on_topics=self._on_topics,
            on_growth=lambda: self.member.loop.ask(self.member.read_new_topics),
            on_missing=self._on_missing,
        )
        self._one_core: OneCore | None = None
        self.lifecycle = Lifecycle(
            make_member=self._make_member,
            assignment=self.assignment,
            dispatcher=self._dispatcher,
            upkeep=self._upkeep,
            lag=self._lag,
            fate=self._fate,
            drain=options.drain_seconds,
            left=lambda: unfinished(self.refused, self.refusal) if self.refused else "",
            close=self._close_all,
            lacking=lambda: preflight.not_allowed(app, settings, target),
        )
        self._thread = threading.Thread(target=self.lifecycle.run, name="redrive-poll", daemon=True)

    # What users do

    def start(self) -> None:
        """Open the resources, join the group and begin."""
        tune_collector()
        if self._options.one_core:
            self._one_core = OneCore()
            self._scope.begin_thread = self._one_core.begin_thread
        try:
            self.executor.start(self._dispatcher)
        except BaseException:
            self._leave_core()
            raise
        try:
            self._start_offsets.settle_latest()
            self.lifecycle.begin()
            self._rules.look()  # before anything is read: what is held must not begin
            self._lag.start()
        except BaseException:
            self._close_all()
            raise
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Start nothing new, let running handlers finish, commit, and close."""
        self.lifecycle.stopping.set()
        self.ended.wait(timeout)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; its error is raised."""
        ended = self.ended.wait(timeout)
        self.check()
        return ended

    def check(self) -> None:
        """Raise the error that ended it, if one did."""
        self._fate.check()

    def status(self, lane: LaneName) -> dict[str, Any]:
        """The lag of a lane, and what is in the way, as last seen."""
        status = {**self._lag.status(lane), "unfinished": self.lifecycle.unfinished.get(lane, 0)}
        if lane == "main" and (refused := self.refused):
            status = {**status, "refused": refused, "refusal": self.refusal}
        if lane == "main" and (guard := words_of(self.guards())):
            status = {**status, "guard": guard}
        if self._units is not None and self._units.trouble.text:
            return {**status, "trouble": self._units.trouble.text}
        return status

    def guards(self) -> list[GuardSeen]:
        """The guards of its handlers, as they are now."""
        guards = self._scope.guards
        return [] if guards is None else guards.seen(self._clock.now())

    def share(self, lane: LaneName) -> Ahead:
        """What is ahead in the partitions that it has: those of all workers are all of it."""
        return self._lag.share(lane)

    def not_live(self) -> str:
        """Why it should be restarted; empty if it should not."""
        if self.ended.is_set():
            return "it has ended"
        if self._fate.error is not None:
            return f"it ends: {self._fate.error}"
        silence = monotonic() - self.member.loop.polled_at
        return f"it has not polled for {silence:.0f} s" if silence > LIVE_WITHIN else ""

    @property
    def member(self) -> GroupMember:
        """Its consumer in the group, and what is made with it."""
        return self.lifecycle.member

    @property
    def ready(self) -> bool:
        """Whether it has joined the group and has partitions."""
        return not self.not_live() and self.assignment.settled and not self.stopping

    @property
    def stopping(self) -> bool:
        """Whether nothing new begins any more."""
        return self.lifecycle.stopping.is_set()

    def oldest_handler(self) -> float:
        """For how many seconds the oldest of the handlers that run has been running; 0: none is."""
        return self._long_running.seconds()

    @property
    def assigned(self) -> int:
        """How many partitions it has."""
        return len(self.assignment.partitions)

    @property
    def blocked_keys(self) -> int:
        """How many keys wait for a parked record, in strict order."""
        return self._dispatcher.blocked()[0]

    @property
    def most_behind(self) -> int:
        """How many records wait of the key of which most do, in strict order."""
        return self._dispatcher.blocked()[1]

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
        return self._delivering.waiting + (0 if self._units is None else self._units.waiting)

    # How it ends

    def _close_all(self) -> None:
        """Close everything, each even if another cannot be closed."""
        for close in (
            self._dispatcher.pause,
            self._lag.close,
            self._leave_group,
            self.lifecycle.attend_no_more,
            self._close_executor,
            self._close_delivering,
            *(() if self._units is None else (self._units.close,)),
            self._upkeep.close,
            self._lag.look_at_the_end,
            self._kafka_log.close,
            self._membership.close,
            self._leave_core,
        ):
            try:
                close()
            except BaseException as error:  # a resource may raise anything
                self._fate.note(error)
                log.debug("closing failed", exc_info=error)

    def _leave_group(self) -> None:
        self.left_behind |= not self.lifecycle.leave()

    def _close_executor(self) -> None:
        left_behind, self.left_behind = self.left_behind, True  # unless it says otherwise
        self.left_behind = not self.executor.close(CLOSE_WAIT) or left_behind

    def _close_delivering(self) -> None:
        self.left_behind |= not self._delivering.close(CLOSE_WAIT)

    def _leave_core(self) -> None:
        if self._one_core is not None:
            self._one_core.close()

    def _on_loss(self, losses: Sequence[str]) -> None:
        for each in losses:
            log.warning("%s; continues with what is left", each)
        self._lag.note_lost(losses)

    def _on_missing(self, topic: str, waiting: int) -> None:
        """A topic is gone, and so many records with it; without the others nothing can be read."""
        if not self._topics.let_go(topic):
            return
        gone = data_loss.deleted(topic, waiting)
        if not waiting:
            log.info("%s: no policy uses it any more", gone)
            return
        try:
            data_loss.report(self.app, [gone], self._on_loss)
        except DataLossError as error:
            self._fate.note(error)

    def _take_rules(self, rules: tuple[ParkedRule, ...]) -> None:
        """Operators have said something about parked records: also about those that wait here."""
        self._scope.parked_rules = rules
        self._dispatcher.look_again()

    def _sink(self, processor: Any, report: Any) -> None:
        self._delivering.add(processor, report)

    def _make_delivering(self) -> DeliveryThread:
        shared = (self._publisher, self._clock, self.counting, self._fate.on_death)
        if self.app.guarantee.transactional:
            on_failure = self._on_failed_transaction
            return TransactionThread(*shared, self._scope.sent_to, on_failure=on_failure)
        return FlushThread(*shared, self._scope.sent_without_unit)

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
            assignment=self.assignment,
            start_offsets=self._start_offsets,
            counting=self.counting,
            clock=self._clock,
            on_trouble=self._fate.note,
            on_death=self._fate.on_death,
            is_over=self.lifecycle.must_end,
        )

    # A partition that has to start again

    def _on_topics(self, ids: Mapping[str, str]) -> None:
        self.member.reopening.reopen_recreated(ids)

    def _on_failed_transaction(self, partition: Partition, error: RedriveError) -> None:
        if isinstance(error, NotAllowedError):
            self._fate.note(error)
            return
        log.warning("%s: %s", partition.place, error)
        self.member.loop.ask(lambda: self.member.reopening.set_aside([partition]))

    def _on_postponed(self, places: list[TopicPartition]) -> None:
        self.member.reopening.later(places)


def start(
    app: App | str, /, *, options: Options | None = None, **arguments: Unpack[SettingsArguments]
) -> Worker:
    """Run an app in this process: `start("shop:app")`, or `start(app)`.

    Settings come from the arguments (`bootstrap="localhost:9092"`), then the app, the environment
    and `redrive.toml`. Whatever would stop the run is raised before anything is consumed.
    """
    found, settings = preflight.load(app, "worker", arguments)
    target = app if isinstance(app, str) else target_of(app)
    return start_app(found, settings, target, options or Options())


def start_app(app: App, settings: Settings, target: str, options: Options) -> Worker:
    """The same for an app and settings that were found right."""
    check_revoke_wait(options, settings)
    check_end(app, options.until)
    ready = preflight.check(app, settings, target, engine="worker", new_app=options.new_app)
    worker = Worker(app, settings, options, target, inbox_ttl=ready.inbox_ttl)
    worker.start()
    return worker
