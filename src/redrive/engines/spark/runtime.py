"""Runtime: what one Python worker process keeps from task to task.

Consumers, producer, threads, event loop and the app's resources are made once per process and
app, and never at import: worker processes are forks.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from pyspark import TaskContext

from redrive import sources
from redrive.app import App
from redrive.clock import WallClock
from redrive.delivery.equipping import equip
from redrive.delivery.units import Units
from redrive.engines.spark import marks
from redrive.engines.spark.outages.task_guards import TaskGuards
from redrive.engines.spark.own_houses import OwnHouses, writer
from redrive.engines.spark.process_cache import ProcessCache
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.loading import load_app
from redrive.logs import log_to_stderr
from redrive.ports import Clock, Publisher
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher, Sink
from redrive.processing.execution.collector import tune_collector
from redrive.processing.execution.executors import Executor, InlineExecutor, executor_for
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.tuning import PROCESS_TO_CLOSE


@dataclass(kw_only=True)
class Clients:
    """The clients of one app in one process."""

    app: App
    clock: Clock
    kafka_log: KafkaLog
    progress: KafkaProgress
    marks: KafkaProgress
    """The same, for whoever only wants to know which run committed last."""
    publisher: KafkaPublisher
    known_topics: set[str] = field(default_factory=set)
    """Topics that were found to take writes."""

    def close(self) -> None:
        """Let go of the clients."""
        for each in (self.kafka_log, self.progress, self.marks, self.publisher):
            each.close()


@dataclass(kw_only=True)
class Runtime(Clients):
    """One app in one process: its clients, and what runs its handlers."""

    run: str
    scope: Scope
    topic_ids: dict[str, str]
    dispatcher: Dispatcher
    executor: Executor
    sinks: dict[PartitionProcessor, Sink]
    """Where the outcomes of each partition of the task under way go."""
    houses: OwnHouses
    """Those of the task under way, in strict order."""
    writer: Publisher
    """What outcomes are written with."""
    units: Units | None = None
    """How lots run, where the app's delivery has a database."""
    deaths: list[BaseException] = field(default_factory=list)
    """What ended threads that run handlers: no task goes on without them."""

    def close(self) -> None:
        """Close what the app has opened, and let go of the clients."""
        try:
            self.executor.close()
        finally:
            if self.units is not None:
                self.units.close()
            super().close()


log: Final = logging.getLogger("redrive.spark")

_PLANNERS: Final = "python_streaming_source_runner"
_closing: Final = threading.Lock()
runtimes: Final[ProcessCache[Runtime]] = ProcessCache()
"""Those of this process; whoever takes one out closes it."""


def runtime(spec: Spec) -> Runtime:
    """The runtime of this process; made when its first task asks."""
    _close_with_spark(os.getpid())  # before there are threads to which the signal could go
    return runtimes.get(spec, _make)


@cache
def _close_with_spark(_pid: int) -> None:
    """Have the app's resources closed when Spark ends, and tells its workers so by SIGHUP.

    It is waited for in a thread: before each task Spark sets back how signals are handled, but not
    which ones wait. A worker that Spark kills has no such chance, as no process has.
    """
    if TaskContext.get() is None:
        return  # not a worker of Spark's: its signals are none of ours
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    threading.Thread(target=_end_with_spark, name="redrive-end", daemon=True).start()


def _end_with_spark() -> None:
    signal.sigwait([signal.SIGHUP])
    close_at_the_end()
    os._exit(0)


def close_at_the_end() -> None:
    """Close the resources of a process that ends: what does not close in time, ends with it."""
    signal.alarm(PROCESS_TO_CLOSE)
    close_all()


def close_all() -> None:
    """Close the resources of this process, once."""
    with _closing:
        for made in runtimes.pop_all():
            try:
                made.executor.close()
            except Exception:
                # The user's own: the others are closed nevertheless.
                log.exception("a resource of %s did not close", made.app.name)


def load(spec: Spec, *, strict: bool = False) -> App:
    """The app, imported as the driver did; what an earlier run imported here is imported again.

    If its text is not the driver's nevertheless, that is an error if `strict` is said.
    """
    reach(spec.folder)
    older = sources.differing(spec.sources)
    if older:
        sources.forget(list(spec.sources))
    app = load_app(spec.target)
    others = sorted(sources.differing(spec.sources))
    if others:
        told = f"{', '.join(others)}: not the text that the run was started with"
        if strict:
            raise ConfigurationError(told)
        log.warning("%s: it has changed since the run started; the new version runs here", told)
    return app


def reach(folder: str) -> None:
    """Have modules of a folder of the driver's found, if this machine can see it."""
    if folder and os.path.isdir(folder) and folder not in sys.path:  # noqa: PTH112 -- a plain test
        sys.path.insert(0, folder)


def log_here(spec: Spec) -> None:
    """Have this process log as the run says, if it is one of Spark's, and nobody has said how."""
    is_planner = any(_PLANNERS in argument for argument in sys.argv)
    if is_planner or TaskContext.get() is not None:
        log_to_stderr(**spec.logs, only_first=True)


def _make(spec: Spec) -> Runtime:
    app = load(spec)
    tune_collector()
    clock = WallClock()
    admin = Admin(spec.settings)
    topic_ids: dict[str, str] = {}
    scope = Scope(app, topic_ids, clock=clock, guarded=True, guards=TaskGuards)
    deaths: list[BaseException] = []
    scope.on_death = deaths.append
    publisher = KafkaPublisher(spec.settings)
    seen = KafkaProgress(spec.settings, app.name, admin=admin, stable=False)
    houses = OwnHouses(app, seen)
    writes_with = writer(app, publisher, houses)
    units = equip(scope, spec.settings, writes_with, clock, inbox_ttl=spec.inbox_ttl, quiet=True)
    sinks: dict[PartitionProcessor, Sink] = {}

    def sink(processor: PartitionProcessor, report: Report) -> None:
        sinks[processor](processor, report)

    dispatcher = Dispatcher(clock, app.concurrency, sink, scope.guards)
    resources = Resources(app)
    executor = _executor(app, scope, resources, units)
    executor.start(dispatcher)
    return Runtime(
        app=app,
        run=spec.run,
        clock=clock,
        kafka_log=KafkaLog(spec.settings, app.name, admin=admin),
        progress=marks.progress_of(spec, app.name, admin, seen),
        marks=seen,
        publisher=publisher,
        scope=scope,
        topic_ids=topic_ids,
        dispatcher=dispatcher,
        executor=executor,
        sinks=sinks,
        houses=houses,
        writer=writes_with,
        units=units,
        deaths=deaths,
    )


def _executor(app: App, scope: Scope, resources: Resources, units: Units | None) -> Executor:
    """In the task's own thread where one is enough: handing over costs more than it gains."""
    found = executor_for(app, scope, resources, units)
    alone = app.concurrency == 1 and not any(
        handler.is_async or handler.ack == "manual" for handler in app.handlers.values()
    )
    return InlineExecutor(scope, resources, units) if alone and not resources.is_async else found
