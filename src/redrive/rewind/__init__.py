"""Rewind: handle old records again, on purpose.

    rewinder = redrive.rewind.open_rewinder(app, settings, by="alice")
    where = redrive.rewind.Where(offsets=("orders[0]@17",))
    print(rewinder.plan(where).records)
    rewinder.rewind(where, why="the prices were wrong")

The command `redrive rewind` does the same, and has no logic of its own.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

from redrive.dead.desk import TakenOverError, UnderWayError
from redrive.rewind.going_back import SoleAccess
from redrive.rewind.plan import RewindPlan
from redrive.rewind.rewinder import Rewinder, Tools
from redrive.rewind.targets import Span, Where

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.app import App
    from redrive.config import Settings
    from redrive.record import TopicPartition

__all__ = [
    "RewindPlan",
    "Rewinder",
    "Span",
    "TakenOverError",
    "UnderWayError",
    "Where",
    "open_rewinder",
]


def open_rewinder(app: App, settings: Settings, by: str) -> Rewinder:
    """Who handles old records of an app again, in that name."""
    from redrive.clock import WallClock
    from redrive.dead import means_of, open_letters
    from redrive.delivery.equipping import known_ids
    from redrive.engines import fencing, preflight
    from redrive.kafka.admin import Admin
    from redrive.kafka.log import KafkaLog
    from redrive.kafka.progress import KafkaProgress
    from redrive.kafka.transactional_producer import TransactionalProducer

    admin, letters = Admin(settings), open_letters(app, settings)

    def fence(places: Collection[TopicPartition]) -> None:
        fencing.fence_off(app, places, lambda at: TransactionalProducer(settings, app.name, at))

    def in_the_way() -> str:
        return preflight.running(admin, app.name) if admin.has_members(app.name) else ""

    tools = Tools(
        log=KafkaLog(settings, app.name, admin=admin),
        means=means_of(letters, settings),
        access=SoleAccess(
            progress=KafkaProgress(settings, app.name, admin=admin),
            seen=KafkaProgress(settings, app.name, admin=admin, stable=False),
            wait_for_workers=lambda: preflight.wait_for_workers(admin, app.name),
            fence=fence,
            clock=WallClock(),
            wait=sleep,
        ),
        in_the_way=in_the_way,
        ids=known_ids(app, settings),
    )
    return Rewinder(letters, tools, by)
