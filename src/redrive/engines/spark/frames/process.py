"""Process: what a process keeps from one batch of frames to the next; never made at import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from redrive.app import App
from redrive.clock import WallClock
from redrive.engines.spark.process_cache import ProcessCache
from redrive.engines.spark.runtime import load
from redrive.engines.spark.spec import Spec
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.ports import Clock


@dataclass(frozen=True)
class Process:
    """The clients of one process."""

    app: App
    log: KafkaLog
    progress: KafkaProgress
    marks: KafkaProgress
    """The same, for whoever only wants to know which run committed last."""
    publisher: KafkaPublisher
    clock: Clock
    known_topics: set[str] = field(default_factory=set)
    """Topics that were found to take writes."""

    def close(self) -> None:
        """Let go of the clients."""
        for each in (self.log, self.progress, self.marks, self.publisher):
            each.close()


_processes: Final[ProcessCache[Process]] = ProcessCache()


def process(spec: Spec) -> Process:
    """The clients of this process; made when they are first needed."""
    return _processes.get(spec, _make)


def _make(spec: Spec) -> Process:
    app = load(spec)
    admin = Admin(spec.settings)
    return Process(
        app,
        KafkaLog(spec.settings, app.name, admin=admin),
        KafkaProgress(spec.settings, app.name, admin=admin),
        KafkaProgress(spec.settings, app.name, admin=admin, stable=False),
        KafkaPublisher(spec.settings),
        WallClock(),
    )
