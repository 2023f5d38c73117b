"""GroupMember: one consumer of the group, and all that is made again when it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from redrive.engines.worker.commits import Commits
from redrive.engines.worker.consuming import worker_config
from redrive.engines.worker.facade import Facades
from redrive.engines.worker.loop import Loop
from redrive.engines.worker.reopening import Reopening
from redrive.kafka.config import make_handle, report_error

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.config import Settings
    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.beginnings import Beginnings
    from redrive.engines.worker.delivering import Delivering
    from redrive.engines.worker.figures import Counting
    from redrive.engines.worker.options import Options
    from redrive.ports import Clock
    from redrive.processing.dispatcher import Dispatcher
    from redrive.processing.scope import Scope
    from redrive.record import TopicPartition
    from redrive.threads import OnDeath

log: Final = logging.getLogger("redrive.worker")
_LEAVE_WAIT: Final = 1.0


class GroupMember:
    """A consumer of the app's group. A worker has one; it makes another when its name is refused.

    Only the poll thread uses it, but for `loop.ask` and `reopening.look_at`.
    """

    def __init__(
        self,
        *,
        app: App,
        settings: Settings,
        options: Options,
        name: str | None,
        topics: Collection[str],
        scope: Scope,
        dispatcher: Dispatcher,
        delivering: Delivering,
        assignment: Assignment,
        beginnings: Beginnings,
        counting: Counting,
        clock: Clock,
        on_trouble: Callable[[BaseException], None],
        on_death: OnDeath,
        is_over: Callable[[], bool],
    ) -> None:
        self._topics = list(topics)
        self._assignment = assignment
        self._can_leave = name is not None and options.protocol == "classic"
        config = worker_config(settings, app.name, options.protocol, name)
        config["on_commit"] = self._on_commit
        self._consumer: Consumer = make_handle(Consumer, config, self._on_error)
        self.commits = Commits(self._consumer, app.commit or "batch", counting)
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
            beginnings,
            on_trouble=on_trouble,
            on_death=on_death,
            is_over=is_over,
        )
        scope.consumer = Facades(self.loop, self._consumer, assignment).of

    def join(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            self._topics,
            on_assign=self._assignment.on_assign,
            on_revoke=self._assignment.on_revoke,
            on_lost=self._assignment.on_lost,
        )

    def rejoin(self) -> None:
        """Leave, also as a static member, and join again: the group shares out anew."""
        self._assignment.settled = False
        self._consumer.unsubscribe()
        self.join()

    def close(self, *, for_good: bool = False) -> None:
        """End it. A static member stays in the group until its session has timed out.

        Unless it ends for good: then it leaves. With the new protocol librdkafka does not let it.
        """
        try:
            if for_good and self._can_leave:
                self._leave()
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            log.warning("the consumer did not close: %s", error)

    def _leave(self) -> None:
        self._consumer.unsubscribe()
        end = monotonic() + _LEAVE_WAIT
        while self._consumer.memberid() and monotonic() < end:
            self._consumer.poll(_LEAVE_WAIT / 100)  # its partitions go, then it leaves

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
