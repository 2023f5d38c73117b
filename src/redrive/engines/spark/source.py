"""The streaming data source `redrive`: each batch is a plan, each partition of it a task.

Spark's offset is only the number of the batch. Planning happens in a process of its own on the
driver's machine, tasks in the Python workers; both get the spec pickled, because options are shown
in Spark's UI.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from redrive.clock import WallClock
from redrive.engines.rules_watch import RulesWatch
from redrive.engines.spark import lost_tasks, marks
from redrive.engines.spark.marks import RivalError
from redrive.engines.spark.outages.shared_book import book_of
from redrive.engines.spark.planner import Planner, Status
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.runtime import load, log_here
from redrive.engines.spark.spec import Spec
from redrive.engines.words import LaneName
from redrive.errors import ConfigurationError, DataLossError, RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import MissingTopicError, NotAllowedError
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.kafka.writable import refusing
from redrive.record import TopicPartition
from redrive.tuning import NOTHING_TO_PLAN_WAIT, PLANNER_PATIENCE, PLANNER_TROUBLE_WAIT

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SCHEMA: Final = "report string"
_FATAL: Final = (RivalError, DataLossError, ConfigurationError, MissingTopicError)


def source(spec: Spec, lane: LaneName) -> type[DataSource]:
    """The data source of one lane of one run."""

    class RedriveSource(DataSource):
        """Made here, so that it is pickled with what it knows instead of by its name."""

        @classmethod
        def name(cls) -> str:
            return source_name(spec, lane)

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's name and way to call it
            return Reader(spec, lane)

    return RedriveSource


def source_name(spec: Spec, lane: LaneName) -> str:
    """Sources of several runs in one session do not meet."""
    return f"redrive-{lane}-{spec.run}"


class Reader(DataSourceStreamReader):
    """Plans batches, and runs their tasks."""

    def __init__(self, spec: Spec, lane: LaneName) -> None:
        self._spec = spec
        self._lane = lane
        self._planner: Planner | None = None
        self._plans: dict[int, list[list[Range]]] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Before the first batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 -- Spark's name and way to call it
        """One batch more, if there is something to do; asked in the planner's own process."""
        log_here(self._spec)
        plan = self.plan()
        if not plan:
            return start
        batch = start["batch"] + 1
        self._plans = {batch: plan}
        return {"batch": batch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002 -- Spark's way to call it
        """The tasks of a batch. One that another process had planned is planned again."""
        plan = self._plans.pop(end["batch"], None)
        if plan is None:
            plan = self.plan()
        return [InputPartition(ranges) for ranges in plan]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Run one task; this is called in a Python worker."""
        from redrive.engines.spark import task

        log_here(self._spec)
        context = TaskContext.get()
        stage, number = (-1, -1) if context is None else (context.stageId(), context.partitionId())
        if context is not None and context.attemptNumber():
            yield (lost_tasks.tell(self._spec, partition.value, stage, number),)
            return
        name = lost_tasks.label(self._spec.run, stage, number)
        slices, lateness, causes, guards = task.run(self._spec, partition.value, name)
        told = {
            "lateness": lateness,
            "causes": [each.as_dict() for each in causes],
            "guards": [asdict(each) for each in guards],
        }
        for report in slices:
            yield (json.dumps({**asdict(report), **told}),)
            told = {kind: [] for kind in told}  # once for the task

    def plan(self) -> list[list[Range]]:
        """The next batch, if there is something to do; troubles are reported and waited for."""
        if self._spec.stop_file.exists():
            return self._nothing()
        try:
            self._planner = self._planner or self._make_planner()
            plan = self._planner.plan()
        except NotAllowedError as error:
            named = NotAllowedError(self._not_allowed() or str(error))
            self._tell(fatal=str(named))
            raise named from None
        except _FATAL as error:
            self._tell(fatal=str(error))
            raise
        except RedriveError as error:
            # An outage is waited for: it is nobody's fault, least of all a record's.
            self._tell(trouble=str(error))
            Event().wait(PLANNER_TROUBLE_WAIT)
            return []
        self._tell(plan=plan, trouble=self._planner.waits_for)
        if not plan:
            Event().wait(NOTHING_TO_PLAN_WAIT)
        return plan

    def _nothing(self) -> list[list[Range]]:
        """The run is being stopped: only look, so that it can be said what is left."""
        trouble = ""
        try:
            if self._planner is not None:
                self._planner.plan()
        except RedriveError as error:
            trouble = str(error)
        self._tell(trouble=trouble, stopped=True)
        Event().wait(NOTHING_TO_PLAN_WAIT)
        return []

    def _tell(
        self,
        *,
        plan: Sequence[Sequence[Range]] = (),
        trouble: str = "",
        fatal: str = "",
        stopped: bool = False,
    ) -> None:
        status = Status(self._lane) if self._planner is None else self._planner.status
        status.trouble, status.fatal, status.stopped = trouble, fatal, stopped
        status.in_flight = sum(each.size for ranges in plan for each in ranges)
        status.write(self._spec.status_file(self._lane))

    def _not_allowed(self) -> str:
        from redrive.engines import preflight  # tasks need none

        spec = self._spec
        return preflight.not_allowed(load(spec), spec.settings, spec.target)

    def _make_planner(self) -> Planner:
        app = load(self._spec)
        app.check("spark")
        admin = Admin(self._spec.settings, patience=PLANNER_PATIENCE)
        kafka_log = KafkaLog(self._spec.settings, app.name, admin=admin)
        seen = KafkaProgress(self._spec.settings, app.name, admin=admin, stable=False)
        return Planner(
            app,
            self._spec,
            self._lane,
            log=kafka_log,
            progress=marks.progress_of(self._spec, app.name, admin, seen),
            has_members=lambda: admin.has_members(app.name),
            clock=WallClock(),
            fence=self._fence(app.name) if app.guarantee.transactional else None,
            refusing=lambda topics: refusing(admin, topics),
            rules=RulesWatch(app, kafka_log).look,
            book=book_of(app, self._spec),
        )

    def _fence(self, app: str) -> Callable[[TopicPartition], TransactionalProducer]:
        settings = self._spec.settings
        return lambda place: TransactionalProducer(settings, app, place)
