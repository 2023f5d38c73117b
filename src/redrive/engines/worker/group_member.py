"""GroupMember: one consumer of the group, and all that is recreated with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from redrive.engines.worker.commits import Commits
from redrive.engines.worker.facade import Facades
from redrive.engines.worker.loop import Loop
from redrive.engines.worker.reader import worker_config
from redrive.engines.worker.reopening import Reopening
from redrive.kafka.config import make_handle, report_error
from redrive.threads import begin
from redrive.tuning import UNSUBSCRIBE_WAIT

if TYPE_CHECKING:
    from concurrent.futures import Future

    from redrive.app import App
    from redrive.config import Settings
    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.counting import Counting
    from redrive.engines.worker.delivery_thread import DeliveryThread
    from redrive.engines.worker.options import Options
    from redrive.engines.worker.start_offsets import StartOffsets
    from redrive.engines.worker.subscription import Subscription
    from redrive.ports import Clock
    from redrive.processing.calls.scope import Scope
    from redrive.processing.dispatcher import Dispatcher
    from redrive.record import TopicPartition
    from redrive.threads import OnDeath

log: Final = logging.getLogger("redrive.worker")


class GroupMember:
    """A consumer of the app's group. A worker has one; it makes another when its name is refused.

    Only the poll thread uses it, but for `loop.ask` and `reopening.reopen_recreated`.
    """

    def __init__(
        self,
        *,
        app: App,
        settings: Settings,
        options: Options,
        name: str | None,
        topics: Subscription,
        scope: Scope,
        dispatcher: Dispatcher,
        delivering: DeliveryThread,
        assignment: Assignment,
        start_offsets: StartOffsets,
        counting: Counting,
        clock: Clock,
        on_trouble: Callable[[BaseException], None],
        on_death: OnDeath,
        is_over: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._assignment = assignment
        self._end: Future[None] | None = None
        self._can_leave = name is not None and options.protocol == "classic"
        config = worker_config(settings, app.name, options.protocol, name)
        config["on_commit"] = self._on_commit
        self._consumer: Consumer = make_handle(Consumer, config, self._on_error)
        self.commits = Commits(
            self._consumer, app.commit or "batch", counting, on_committed=assignment.note_committed
        )
        assignment.commits = self.commits
        self.loop = Loop(
            app=app,
            consumer=self._consumer,
            assignment=assignment,
            dispatcher=dispatcher,
            delivering=delivering,
            commits=self.commits,
            clock=clock,
            options=options,
            on_gone=self._on_gone,
        )
        self.reopening = Reopening(
            self._consumer,
            self.loop,
            assignment,
            start_offsets,
            on_trouble=on_trouble,
            on_death=on_death,
            is_over=is_over,
        )
        scope.consumer = Facades(self.loop, self._consumer, assignment).of

    def join(self) -> None:
        """Join the group; also again, for topics that have been added."""
        self._consumer.subscribe(
            self._topics.shared_out,
            on_assign=self._assignment.on_assign,
            on_revoke=self._assignment.on_revoke,
            on_lost=self._assignment.on_lost,
        )

    def read_new_topics(self) -> None:
        """Read delay topics that have come; in strict order, with what they follow."""
        self.join()
        self.reopening.take_up_new_rooms()

    def rejoin(self) -> None:
        """Leave, also as a static member, and join again: the group shares out again."""
        self._assignment.settled = False
        self._consumer.unsubscribe()
        self.join()

    def close(self, seconds: float, *, for_good: bool = False) -> bool:
        """End it; whether that was within the time.

        A static member stays in the group until its session has timed out, unless it ends for good:
        then it leaves. With the new protocol librdkafka does not let it.
        """
        if for_good and self._can_leave and self._end is None:
            try:
                self._leave()
            except (KafkaException, RuntimeError) as error:
                log.warning("the consumer did not leave: %s", error)
        if self.ended_within(seconds):
            return True
        log.warning("the group's coordinator does not answer: the session has to time out")
        return False

    @property
    def is_ending(self) -> bool:
        """Whether its consumer is being closed, or is: nobody may use it any more."""
        return self._end is not None

    def ended_within(self, seconds: float) -> bool:
        """End it, once however often this is called; whether that was within the time.

        While its coordinator is silent, librdkafka waits for that, a minute or more.
        """
        if self._end is None:
            self._end = begin(self._consumer.close, name="redrive-leaving")
        try:
            self._end.result(seconds)
        except TimeoutError:
            return False
        except (KafkaException, RuntimeError) as error:
            log.warning("the consumer did not close: %s", error)
        return True

    def _leave(self) -> None:
        self._consumer.unsubscribe()
        end = monotonic() + UNSUBSCRIBE_WAIT
        while self._consumer.memberid() and monotonic() < end:
            self._consumer.poll(UNSUBSCRIBE_WAIT / 100)  # its partitions go, then it leaves

    def _on_error(self, error: KafkaError) -> None:
        report_error(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 -- its name in librdkafka
            self.loop.note_out_of_reach()

    def _on_commit(self, error: Any, answered: list[Any]) -> None:
        self.commits.on_commit(error, answered, self._assignment.partitions)

    def _on_gone(self, place: TopicPartition) -> None:
        """Records are gone that were not read yet: it begins again as `on_data_loss` says."""
        partition = self._assignment.partitions.get(place)
        if partition is not None:
            self.reopening.set_aside([partition])
