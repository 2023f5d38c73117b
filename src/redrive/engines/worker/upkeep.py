"""Upkeep: what the poll thread does now and then, besides polling."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from redrive.engines.cause_log import CauseLog
from redrive.tuning import UPKEEP_EVERY

if TYPE_CHECKING:
    from redrive.delivery.units import Units
    from redrive.engines.worker.counting import Counting
    from redrive.engines.worker.fate import Fate
    from redrive.errors import RedriveError
    from redrive.kafka.publisher import KafkaPublisher
    from redrive.processing.calls.scope import Scope
    from redrive.processing.execution.executors import Executor
    from redrive.processing.execution.long_running import LongRunning


class Upkeep:
    """Handlers that hang are given up; why records fail, and what takes long, is reported."""

    def __init__(
        self,
        *,
        scope: Scope,
        executor: Executor,
        publisher: KafkaPublisher,
        long_running: LongRunning,
        counting: Counting,
        fate: Fate,
        units: Units | None,
    ) -> None:
        self._scope = scope
        self._executor = executor
        self._publisher = publisher
        self._long_running = long_running
        self._counting = counting
        self._fate = fate
        self._units = units
        self._causes = CauseLog(scope.app.name)
        self._last = monotonic()

    def look(self) -> None:
        """Do what is to be done, if it is time."""
        now = monotonic()
        if now - self._last > UPKEEP_EVERY:
            self._last = now
            self._counting.hung += self._executor.give_up_hung()
            error: RedriveError | None = self._publisher.not_allowed
            if error is None and self._units is not None:
                error = self._units.trouble.not_allowed
            if error is not None:
                self._fate.note(error)
            self._take_causes()
            self._long_running.look()

    def close(self) -> None:
        """Report what has not been reported yet."""
        self._take_causes()
        self._causes.sum_up()

    def _take_causes(self) -> None:
        seen = self._scope.causes.take()
        self._counting.figures.count_dead(seen, self._scope.app.handlers)
        self._causes.add(seen)
