"""Marks: every offset that a run on Spark commits says which run it was, and of which topic.

Both are notes in the commit's metadata. By the run (`s1:`) an older one finds out that a newer one
has begun, and stops; the topics that carry it are those that the app reads anyway. By the topic's
id (`t1:`) an offset that a late task committed for a topic that was deleted meanwhile is not taken
for progress in its successor of the same name.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from redrive.engines.offset_reset import is_of_another
from redrive.errors import RedriveError
from redrive.kafka.errors import BrokerError
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.transactional_producer import FencedError, TransactionalProducer
from redrive.ports import Position
from redrive.processing.progress.notes import RUN, TOPIC, noted, with_note
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.spark.spec import Spec
    from redrive.kafka.admin import Admin
    from redrive.ports import Progress

OLD_MARK: Final = "redrive-run:"
"""How versions before this one marked a run: once, beside an offset of the dead topic."""


REWIND: Final = "rewind-"
"""What the mark of a rewind has behind its time: runs that are under way stop for it, too."""


class RivalError(RedriveError):
    """Another run of the app is active."""


def labelled(position: Position, *, topic_id: str, run: str) -> Position:
    """The position as a run commits it."""
    return with_note(with_note(position, RUN, run), TOPIC, topic_id)


def new_run(now: int, found: Iterable[Position], kind: str = "") -> str:
    """A name for a run, newer than all that have left their mark, whatever the clocks say."""
    newest = max((_order(noted(each, RUN))[0] for each in found), default=0)
    return f"{max(now, newest + 1)}-{kind}{uuid.uuid4().hex[:12]}"


def check(app: str, run: str, found: Iterable[Position]) -> None:
    """See that this is the newest run of the app: a RivalError says that it is not."""
    newest = max((noted(each, RUN) for each in found), key=_order, default="")
    if _order(newest) > _order(run):
        raise rewound(app) if REWIND in newest else taken_over(app)


def with_firsts(places: Iterable[TopicPartition]) -> set[TopicPartition]:
    """These and the first partitions of their topics.

    A planner marks the first partition of each topic before it has anything run.
    """
    found = {*places}
    return found | {TopicPartition(place.topic, 0) for place in found}


def look(app: str, run: str, places: Collection[TopicPartition], progress: Progress) -> None:
    """The same for a task, by its partitions and the first ones of their topics."""
    check(app, run, progress.committed(with_firsts(places)).values())


def progress_of(spec: Spec, app: str, admin: Admin, seen: Progress) -> KafkaProgress:
    """The progress for a run, which commits only while it is the newest one, as far as is seen.

    Without transactions nobody fences off a task whose handlers take long: it would move on what a
    newer run, or a rewind, has put back meanwhile.
    """

    def check_newest(places: Collection[TopicPartition]) -> None:
        look(app, spec.run, places, seen)

    return KafkaProgress(spec.settings, app, admin=admin, check=check_newest)


def producer(
    spec: Spec, app: str, place: TopicPartition, progress: Progress
) -> TransactionalProducer:
    """A task's producer, which fences off whoever had the partition before.

    A task that is left over from an earlier run must not fence off those of this one. And whoever
    came between may have put the progress back: what this task would go on from is not true then.
    """
    look(app, spec.run, [place], progress)
    made = TransactionalProducer(spec.settings, app, place)
    look(app, spec.run, [place], progress)
    return made


def reached(place: TopicPartition, topic_id: str, progress: Progress) -> Position | None:
    """What is committed for this very topic; None also for what is left of one before it."""
    found = progress.committed([place]).get(place)
    return None if is_of_another(found, topic_id) else found


def explained(
    error: Exception | None,
    app: str,
    run: str,
    places: Iterable[TopicPartition],
    progress: Progress,
) -> Exception | None:
    """Why a task ended; of one that was fenced off, by whom: a newer run, or one of this run.

    Spark lets tasks of a job that failed go on for a while. One of them may open its partition
    after the next job did.
    """
    if not isinstance(error, FencedError):
        return error
    try:
        look(app, run, [*places], progress)
    except RedriveError as found:
        return found
    return RedriveError(
        "a task was fenced off, though no newer run of the app is known: most likely by one of"
        f" this run that Spark had given up ({error})"
    )


def taken_over(app: str) -> RivalError:
    """What the older of two runs says."""
    return RivalError(
        f"another run of the app {app} on Spark has begun and taken over:"
        " this one stops; the other one runs whatever was not committed"
    )


def rewound(app: str) -> RivalError:
    """What a run says whose app's progress was put back while it ran."""
    return RivalError(
        f"the progress of the app {app} was put back by `redrive rewind` while this run was"
        " active: this one stops; start it again to handle the records from there on"
    )


def moved(app: str, later: str) -> RivalError:
    """What a run says whose app was renamed and started while it ran."""
    return RivalError(
        f'the app {app} goes on as "{later}", which was started with was="{app}" while this run was'
        " active: this one stops; the other one repeats what it did meanwhile"
    )


def _order(run: str) -> tuple[int, str]:
    began, _, rest = run.partition("-")
    return (int(began), rest) if began.isdecimal() else (0, run)


def old_place(app: App) -> TopicPartition:
    """Where versions before this one leave their mark, and look for it."""
    return TopicPartition(app.dead_topic, 0)


def replace_old_mark(app: App, run: str, progress: Progress) -> str:
    """Have runs of versions before this one stop; returns a mark that could not be replaced.

    Only where one of them has left its mark: it asks for the right to read the dead topic, and
    shows as lag of that topic. Who has not that right has no such run either.
    """
    place = old_place(app)
    found = progress.committed([place]).get(place)
    if found is None or not found.metadata.startswith(OLD_MARK):
        return ""
    try:
        progress.commit({place: found._replace(metadata=OLD_MARK + run)})
    except BrokerError:
        return found.metadata
    return ""


def check_old_mark(app: str, run: str, found: Position | None, *, known: str) -> None:
    """See that no run of a version before this one has begun later; `known` is none."""
    theirs = "" if found is None else found.metadata
    if theirs.startswith(OLD_MARK) and theirs not in (OLD_MARK + run, known):
        raise taken_over(app)
