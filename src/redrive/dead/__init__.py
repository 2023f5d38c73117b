"""Dead letters: see what failed, try the fix, drive it again.

    letters = redrive.dead.open_letters(app, settings)
    for group in letters.groups()[0]:
        print(group.count, group.error_type, group.example)

Any dead topic can be read, whoever wrote it: `open_letters(None, settings, topic="orders.DLT")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.dead.dialects import DIALECTS
from redrive.dead.filters import Filter
from redrive.dead.groups import Group
from redrive.dead.letter import Letter
from redrive.dead.letters import DeadLetters, Detail
from redrive.dead.operations import Operation
from redrive.dead.scan import Found, Scanned
from redrive.dead.stats import Stats

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
    "Scanned",
    "Stats",
    "open_letters",
]


def open_letters(
    app: App | None, settings: Settings, *, topic: str | None = None, dialect: str = "auto"
) -> DeadLetters:
    """The dead letters of an app, or of any dead topic, on a Kafka."""
    from redrive.kafka.log import KafkaLog

    group = app.name if app is not None else f"{topic}.redrive"
    return DeadLetters(KafkaLog(settings, group), app=app, topic=topic, dialect=dialect)
