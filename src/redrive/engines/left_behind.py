"""What an earlier version of the app has left: records where no policy parks, or no handler reads.

A run reads delay topics that no policy uses any more like the others. Source topics without a
handler it does not read. Nothing else would show that records wait there.
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
from redrive.numbers import counted
from redrive.ports import Position
from redrive.processing.progress.notes import RUN, TOPIC, noted
from redrive.record import TopicPartition, partitions_of


def left_behind(app: App, settings: Settings, admin: Admin) -> dict[str, int]:
    """Topics that an earlier version used, with the number of records waiting in each.

    Delay topics also where nothing waits: they can be deleted.
    """
    counts = admin.partitions()
    delays = [name for name in app.waiting_topics(counts) if app.can_do_without(name)]
    groups = (app.name,) if app.was is None else (app.was, app.name)
    found = waiting(groups, {name: counts[name] for name in delays}, settings, admin)
    own = {*app.handlers, *app.delay_topics, *app.waiting_topics(counts), app.dead_topic}
    others = {name: count for name, count in counts.items() if name not in own}
    places = _offsets(groups, partitions_of(others), settings, admin)
    sources = {place.topic for place, at in places.items() if noted(at, TOPIC) or noted(at, RUN)}
    read = {name: counts[name] for name in sorted(sources) if not _is_of(groups, name)}
    unread = waiting(groups, read, settings, admin)
    return found | {name: records for name, records in unread.items() if records}


def waiting(
    groups: Collection[str], topics: Mapping[str, int], settings: Settings, admin: Admin
) -> dict[str, int]:
    """How many records of these topics a group has not handled; topics by their partition counts.

    Of an app that was renamed, the last of the groups that has committed anything counts. If this
    user may not read their offsets, it is how many records there are.
    """
    found = dict.fromkeys(topics, 0)
    for place, records in waiting_in(groups, partitions_of(topics), settings, admin).items():
        found[place.topic] += records
    return found


def waiting_in(
    groups: Collection[str], places: Collection[TopicPartition], settings: Settings, admin: Admin
) -> dict[TopicPartition, int]:
    """The same of some partitions."""
    if not places:
        return {}
    at = _offsets(groups, places, settings, admin)
    with closing(KafkaLog(settings, next(iter(groups)), admin=admin)) as log:
        return {
            place: max(0, end - max(begin, at[place].offset if place in at else begin))
            for place, (begin, end) in log.all_bounds(places).items()
        }


def sentence(app: App, topic: str, records: int) -> str:
    """The message about one of them."""
    # Offsets are counted: transactions and compaction leave some of them without a record.
    what = f"about {counted(records, 'record is', 'records are')}"
    if app.delay_of(topic) is None:
        return (
            f"no handler reads {topic} any more, but {what} unread there: add its handler"
            " again, or leave them unread"
        )
    if not records:
        return f"no policy uses {topic} any more, and nothing is waiting there: it can be deleted"
    return f"no policy uses {topic} any more, but {what} waiting there: a run keeps reading it"


def _is_of(groups: Collection[str], topic: str) -> bool:
    """Whether it is a delay topic or the dead topic of an app, by its name."""
    return any(topic == f"{app}.dead" or topic.startswith(f"{app}.retry.") for app in groups)


def _offsets(
    groups: Collection[str], places: Collection[TopicPartition], settings: Settings, admin: Admin
) -> dict[TopicPartition, Position]:
    found: dict[TopicPartition, Position] = {}
    for group in groups:
        reader = KafkaProgress(settings, group, admin=admin, stable=False)
        with closing(reader) as progress:
            try:
                found |= progress.committed(places)
            except NotAllowedError:
                pass  # the run itself says what it is not allowed to do
    return found
