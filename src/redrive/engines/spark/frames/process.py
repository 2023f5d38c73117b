"""Process: what a process keeps from one batch of frames to the next; never made at import."""

from __future__ import annotations

from typing import Final

from redrive.clock import WallClock
from redrive.engines.spark import marks
from redrive.engines.spark.process_cache import ProcessCache
from redrive.engines.spark.runtime import Clients, load
from redrive.engines.spark.spec import Spec
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher

_processes: Final[ProcessCache[Clients]] = ProcessCache()


def process(spec: Spec) -> Clients:
    """The clients of this process; made when they are first needed."""
    return _processes.get(spec, _make)


def _make(spec: Spec) -> Clients:
    app = load(spec)
    admin = Admin(spec.settings)
    seen = KafkaProgress(spec.settings, app.name, admin=admin, stable=False)
    return Clients(
        app=app,
        clock=WallClock(),
        kafka_log=KafkaLog(spec.settings, app.name, admin=admin),
        progress=marks.progress_of(spec, app.name, admin, seen),
        marks=seen,
        publisher=KafkaPublisher(spec.settings),
    )
