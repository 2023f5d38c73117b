"""What waits in delay topics that no policy uses any more: left by an earlier version of the app.

A run reads them like the others. But nothing else would show that they exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing

from redrive.app import App
from redrive.config import Settings
from redrive.kafka.admin import Admin
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.record import TopicPartition, partitions_of


def left_behind(app: App, settings: Settings, admin: Admin) -> dict[str, int]:
    """The delay topics that no policy uses, with the number of records waiting in each."""
    counts = admin.partitions()
    former = [name for name in app.waiting_topics(counts) if name not in app.delay_topics]
    return waiting(app.name, {name: counts[name] for name in former}, settings, admin)


def waiting(
    group: str, topics: Mapping[str, int], settings: Settings, admin: Admin
) -> dict[str, int]:
    """How many records of these topics a group has not handled; topics by their partition counts.

    If this user may not read the group's offsets, it is how many records there are.
    """
    places = partitions_of(topics)
    at = _offsets(group, places, settings, admin)
    found = dict.fromkeys(topics, 0)
    with closing(KafkaLog(settings, group, admin=admin)) as log:
        for place, (begin, end) in log.all_bounds(places).items():
            found[place.topic] += max(0, end - max(begin, at.get(place, begin)))
    return found


def sentence(topic: str, records: int) -> str:
    """The message about one of them."""
    if not records:
        return f"no policy uses {topic} any more, and nothing is waiting there: it can be deleted"
    what = "1 record is waiting" if records == 1 else f"{records} records are waiting"
    return f"no policy uses {topic} any more, but up to {what} there: a run keeps reading it"


def _offsets(
    group: str, places: Collection[TopicPartition], settings: Settings, admin: Admin
) -> dict[TopicPartition, int]:
    reader = KafkaProgress(settings, group, admin=admin, stable=False)
    with closing(reader) as progress:
        try:
            return {place: found.offset for place, found in progress.committed(places).items()}
        except NotAllowedError:
            return {}
