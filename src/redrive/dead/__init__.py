"""Dead letters: see what failed, try the fix, drive it again.

    letters = redrive.dead.open_letters(app, settings)
    for group in letters.groups()[0]:
        print(group.count, group.error_type, group.example)

Any dead topic can be read, whoever wrote it: `open_letters(None, settings, topic="orders.DLT")`.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

from redrive.app import state_topic_of
from redrive.dead.desk import Means
from redrive.dead.dialects import DIALECTS
from redrive.dead.filters import Filter
from redrive.dead.groups import Group
from redrive.dead.letter import Letter
from redrive.dead.letters import DeadLetters, Detail
from redrive.dead.operations import Operation
from redrive.dead.operator import Operator, Options
from redrive.dead.scan import Found, Scanned
from redrive.dead.selection import Plan
from redrive.dead.stats import Stats
from redrive.dead.trying import Trying
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.config import Settings

__all__ = [
    "DIALECTS",
    "DeadLetters",
    "Detail",
    "Filter",
    "Found",
    "Group",
    "Letter",
    "Operation",
    "Operator",
    "Options",
    "Plan",
    "Scanned",
    "Stats",
    "Trying",
    "open_letters",
    "open_operator",
]


def open_letters(
    app: App | None, settings: Settings, *, topic: str | None = None, dialect: str = "auto"
) -> DeadLetters:
    """The dead letters of an app, or of any dead topic, on a Kafka."""
    from redrive.kafka.log import KafkaLog

    group = app.name if app is not None else f"{topic}.redrive"
    return DeadLetters(KafkaLog(settings, group), app=app, topic=topic, dialect=dialect)


def open_operator(letters: DeadLetters, settings: Settings, by: str) -> Operator:
    """Who drives letters again and discards them, in that name."""
    from redrive.clock import WallClock
    from redrive.kafka.progress import KafkaProgress
    from redrive.kafka.topic_admin import KafkaTopics
    from redrive.kafka.transactional_producer import TransactionalProducer

    owner = letters.topic if letters.app is None else letters.app.name
    place = TopicPartition(state_topic_of(letters.topic), 0)
    means = Means(
        take_over=lambda: TransactionalProducer(settings, owner, place),
        topics=KafkaTopics(settings),
        clock=WallClock(),
        wait=sleep,
        progress=None if letters.app is None else KafkaProgress(settings, owner, stable=False),
    )
    return Operator(letters, means, by)
