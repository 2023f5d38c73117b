"""Dead letters: see what failed, try the fix, replay it.

    letters = redrive.dead.open_letters(app, settings)
    for group in letters.groups()[0]:
        print(group.count, group.error_type, group.example)

Any dead topic can be read, whoever wrote it: `open_letters(None, settings, topic="orders.DLT")`.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

from redrive.app import owner_of, state_topic_of
from redrive.dead.desk import Means, TakenOverError, UnderWayError
from redrive.dead.dialects import DIALECTS
from redrive.dead.filters import Filter
from redrive.dead.fixing import FixError
from redrive.dead.groups import Group
from redrive.dead.letter import Letter
from redrive.dead.letters import DeadLetters, Detail
from redrive.dead.operations import Operation
from redrive.dead.operator import Operator, ReplayOptions
from redrive.dead.scan import Found, Scanned
from redrive.dead.selection import ReplayPlan
from redrive.dead.stats import Stats
from redrive.dead.steering import Steering, SteeringPlan
from redrive.dead.trying import Trying
from redrive.parked_rules import Match, ParkedRule
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.config import Settings

__all__ = [
    "DIALECTS",
    "DeadLetters",
    "Detail",
    "Filter",
    "FixError",
    "Found",
    "Group",
    "Letter",
    "Match",
    "Operation",
    "Operator",
    "ParkedRule",
    "ReplayOptions",
    "ReplayPlan",
    "Scanned",
    "Stats",
    "Steering",
    "SteeringPlan",
    "TakenOverError",
    "Trying",
    "UnderWayError",
    "open_letters",
    "open_operator",
    "open_steering",
]


def open_letters(
    app: App | None, settings: Settings, *, topic: str | None = None, dialect: str = "auto"
) -> DeadLetters:
    """The dead letters of an app, or of any dead topic, on a Kafka."""
    from redrive.kafka.log import KafkaLog

    group = group_of(app, topic)
    return DeadLetters(KafkaLog(settings, group), app=app, topic=topic, dialect=dialect)


def group_of(app: App | None, topic: str | None) -> str:
    """The group in whose name letters are read; nobody joins it."""
    return app.name if app is not None else f"{topic}.redrive"


def open_operator(letters: DeadLetters, settings: Settings, by: str) -> Operator:
    """Who replays letters and discards them, in that name."""
    return Operator(letters, means_of(letters, settings), by)


def means_of(letters: DeadLetters, settings: Settings) -> Means:
    """What changes something about these letters, on a Kafka."""
    from redrive.clock import WallClock
    from redrive.delivery.equipping import known_ids
    from redrive.kafka.log import KafkaLog
    from redrive.kafka.progress import KafkaProgress
    from redrive.kafka.topic_admin import KafkaTopics
    from redrive.kafka.transactional_producer import TransactionalProducer

    app = letters.app
    owner = owner_of(letters.topic)
    state = state_topic_of(letters.topic)
    place = TopicPartition(state, 0)
    log = KafkaLog(settings, group_of(app, letters.topic))
    return Means(
        take_over=lambda: TransactionalProducer(settings, owner, place),
        # The state topic has one partition: no engine ever has one of these ids.
        take_over_shard=lambda number: TransactionalProducer(
            settings, owner, TopicPartition(state, 1 + number)
        ),
        settle=lambda: log.settle(place),
        topics=KafkaTopics(settings),
        clock=WallClock(),
        wait=sleep,
        progress=None if app is None else KafkaProgress(settings, app.name, stable=False),
        # Letters can be replayed where there is no way to the database.
        ids=None if app is None or settings.database is None else known_ids(app, settings),
    )


def open_steering(app: App, settings: Settings, by: str) -> Steering:
    """Who holds parked records and lets them run now, in that name."""
    from redrive.clock import WallClock
    from redrive.kafka.log import KafkaLog
    from redrive.kafka.progress import KafkaProgress
    from redrive.kafka.publisher import KafkaPublisher

    return Steering(
        app,
        log=KafkaLog(settings, app.name),
        progress=KafkaProgress(settings, app.name, stable=False),
        publisher=KafkaPublisher(settings),
        clock=WallClock(),
        by=by,
    )
