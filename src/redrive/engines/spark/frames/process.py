"""Process: what a process keeps from one batch of frames to the next; never made at import."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from redrive.app import App
from redrive.clock import WallClock
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


_processes: Final[dict[tuple[str, str, int], Process]] = {}


def process(spec: Spec) -> Process:
    """The clients of this process; made when they are first needed."""
    # A fork has the parent's objects, but not its threads: it makes its own.
    key = (spec.target, spec.run, os.getpid())
    if key not in _processes:
        app = load(spec)
        admin = Admin(spec.settings)
        _processes[key] = Process(
            app,
            KafkaLog(spec.settings, app.name, admin=admin),
            KafkaProgress(spec.settings, app.name, admin=admin),
            KafkaProgress(spec.settings, app.name, admin=admin, stable=False),
            KafkaPublisher(spec.settings),
            WallClock(),
        )
    return _processes[key]
