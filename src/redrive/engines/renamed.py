"""Renamed: an app without progress may be an existing one under a new name.

The name is the consumer group. So under a new name everything would run again, from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from difflib import SequenceMatcher
from functools import partial
from typing import Final

from redrive.app import App
from redrive.config import Settings
from redrive.durations import milliseconds
from redrive.engines.left_behind import waiting
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.admin import Admin, pause
from redrive.kafka.errors import BrokerError, NotAllowedError
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.ports import Position
from redrive.processing.progress.done_beyond import METADATA_LIMIT, PREFIX, decode, encode
from redrive.processing.progress.notes import BEGUN, MOVED, RUN, TOPIC, noted, with_note
from redrive.record import TopicPartition, partitions_of
from redrive.tuning import (
    RENAMED_MOST_GROUPS,
    RENAMED_SIDE_BY_SIDE,
    TAKE_OVER_LOOK_EVERY,
    TAKE_OVER_LOOKS,
    TAKE_OVER_STOOD,
)

log: Final = logging.getLogger("redrive")

Counts = Mapping[str, int]
"""All visible topics, with their partition counts."""
Positions = dict[TopicPartition, Position]


class Names:
    """What is known about an app and others on the same Kafka."""

    def __init__(self, app: App, settings: Settings, admin: Admin) -> None:
        self._app = app
        self._settings = settings
        self._admin = admin
        self._counts: Counts = admin.partitions()

    def earlier(self) -> str | None:
        """The app that this one may have been before; None: there is none, or it is declared.

        It has progress in some of these source topics and in no others; this app has none.
        """
        others = sorted(_apps(self._counts) - {self._app.name}, key=self._likeness, reverse=True)
        if not others or self._has_progress():
            return None
        with ThreadPoolExecutor(RENAMED_SIDE_BY_SIDE) as side_by_side:
            found = side_by_side.map(self._reads_these_only, others[:RENAMED_MOST_GROUPS])
            return next((name for name, same in zip(others, found, strict=False) if same), None)

    def later(self) -> str | None:
        """The new name under which this app has continued; None: it has not been renamed.

        Once this app has committed anything again, it counts as a different app.
        """
        try:
            progress = self._progress_of(self._app.name, self._app.handlers)
        except NotAllowedError:
            return None  # the run itself says what it is not allowed to do
        found = {noted(at, MOVED) for at in progress.values()}
        return found.pop() or None if len(found) == 1 else None

    def take_over(self, was: str, when_gone: Callable[[], None]) -> None:
        """Continue where the app stopped under its old name, unless this one has already begun.

        Also when it is renamed back. The old progress is marked first: an app that is started under
        the old name again would run everything after it a second time.
        """
        if self._has_begun(was):
            return
        when_gone()
        topics = [*self._app.handlers, *self._app.waiting_topics(self._counts)]
        try:
            left = self._mark(was)
            progress = {place: at for place, at in left.items() if place.topic in topics}
            mine = self._progress_of(self._app.name, topics)
            parked = self._beginnings([each for each in topics if _of(was, each)])
            new = {**parked, **mine, **progress}
            self._commit(self._app.name, {p: _clean(at) for p, at in new.items()})
        except BrokerError:
            # Was another process of this app faster?
            if self.later() == was or not self._has_progress():
                raise
            return
        if progress:
            log.info(
                "%s continues where %s stopped: %d partitions", self._app.name, was, len(progress)
            )

    def _mark(self, was: str) -> Positions:
        """Mark the progress of the old name; returns it.

        Also where this version does not read: else the old one would seem to have gone on. A run on
        Spark is no member of the group. If one is still under way it commits over the marks, unless
        it notices them first and ends.
        """
        left = self._progress_of(was, self._counts, stable=True)
        marked = {p: _marked(at, self._app.name) for p, at in left.items()}
        self._commit(was, marked)
        if not any(noted(at, RUN) for at in left.values()):
            return left
        log.info("waiting to see whether %s is still running on Spark", was)
        stood = 0
        for _ in range(TAKE_OVER_LOOKS):
            pause(TAKE_OVER_LOOK_EVERY)
            found = self._progress_of(was, self._counts, stable=True)
            # Where only the mark was committed, what was read before is more: it had no room.
            left = {p: left[p] if at == marked.get(p) else at for p, at in found.items()}
            gone = {p: at for p, at in found.items() if noted(at, MOVED) != self._app.name}
            again = {p: _marked(at, self._app.name) for p, at in gone.items()}
            self._commit(was, again)
            marked |= again
            stood = 0 if gone else stood + 1
            if stood == TAKE_OVER_STOOD:
                return left
        raise RedriveError(
            f'the app "{was}", which this one was, is still running on Spark and commits: stop it'
            " first"
        )

    def stranded(self) -> dict[str, int]:
        """What waits in delay topics of an old name that the app no longer declares.

        They are known from the progress that was taken over.
        """
        return self._waiting_elsewhere(self._app.name)

    def stranded_before(self, was: str) -> dict[str, int]:
        """What waits under the name before the old one: to be checked before a take-over.

        The old name reads it, and this one would not.
        """
        return {} if self._has_begun(was) else self._waiting_elsewhere(was)

    def _has_begun(self, was: str) -> bool:
        """Whether the app has its own progress, not counting what was handed over to that name."""
        return self.later() != was and self._has_progress()

    def _waiting_elsewhere(self, group: str) -> dict[str, int]:
        """What waits for a group in delay topics that the app does not read."""
        others = [
            name
            for name in self._counts
            if _is_delay(name.partition(".retry.")[2]) and self._app.delay_of(name) is None
        ]
        try:
            taken = {place.topic for place in self._progress_of(group, others)}
        except NotAllowedError:
            return {}  # the run itself says what it is not allowed to do
        topics = {name: self._counts[name] for name in taken}
        found = waiting([group], topics, self._settings, self._admin)
        return {name: records for name, records in sorted(found.items()) if records}

    def _beginnings(self, topics: list[str]) -> Positions:
        """Where the old name's delay topics begin, including those that it never read."""
        if not topics:
            return {}
        with closing(KafkaLog(self._settings, self._app.name, admin=self._admin)) as log_:
            ids = log_.topics(topics)
            counts = {name: count for name, (_, count) in ids.items()}
            bounds = log_.all_bounds(partitions_of(counts))
        return {
            place: with_note(Position(begin), TOPIC, ids[place.topic][0])
            for place, (begin, _) in bounds.items()
        }

    def _commit(self, name: str, positions: Positions) -> None:
        with closing(KafkaProgress(self._settings, name, admin=self._admin)) as progress:
            progress.commit(positions)

    def _has_progress(self) -> bool:
        try:
            return bool(self._progress_of(self._app.name, self._app.handlers))
        except NotAllowedError:
            return True  # the run itself says what it is not allowed to do

    def _reads_these_only(self, name: str) -> bool:
        others = [topic for topic in self._counts if topic not in self._app.handlers]
        try:
            return bool(self._progress_of(name, self._app.handlers)) and not self._progress_of(
                name, [each for each in others if not _of(name, each)]
            )
        except NotAllowedError:
            return False  # somebody else's app

    def _progress_of(self, name: str, topics: Iterable[str], *, stable: bool = False) -> Positions:
        """What redrive has committed for an app.

        With `stable`, what is pending in a transaction is waited for.
        """
        places = partitions_of({each: self._counts.get(each, 0) for each in topics})
        reader = partial(KafkaProgress, admin=self._admin, stable=stable)
        with closing(reader(self._settings, name)) as progress:
            found = progress.committed(places)
        return {p: at for p, at in found.items() if noted(at, TOPIC) or noted(at, RUN)}

    def _likeness(self, name: str) -> float:
        return SequenceMatcher(None, name, self._app.name).ratio()


def sentence(app: App, earlier: str) -> str:
    """The error, and what to do about it."""
    return (
        f'the app "{app.name}" has no committed offsets yet, and "{earlier}" has some in the same'
        f' topics: if this is "{earlier}" under a new name, it would run everything again, so'
        f' write App("{app.name}", was="{earlier}") to continue where that stopped; if it is a'
        " different app, start it with --new-app (new_app=True)"
    )


def moved(app: App, later: str) -> str:
    """What to do about an app that has continued under another name."""
    return (
        f'the app "{app.name}" was renamed to "{later}", which has continued from here: under the'
        f' old name everything since then would run again; to go back, write App("{app.name}",'
        f' was="{later}"); to run both, start it with --new-app (new_app=True)'
    )


def unread(app: App, stranded: Mapping[str, int]) -> str:
    """What to do about records that wait under an old name."""
    listed, was = _listed(stranded)
    return (
        f'the app "{app.name}" still has records waiting under its old name ({listed}): nobody'
        f' reads them without App("{app.name}", was="{was}"), so keep that until they are done; to'
        " start without them, give --new-app (new_app=True)"
    )


def unread_before(app: App, stranded: Mapping[str, int]) -> str:
    """What to do about records that wait under the name before the old one."""
    listed, first = _listed(stranded)
    return (
        f'the app "{app.was}" still has records waiting under its previous name ({listed}):'
        f' "{app.name}" would not read them, so run App("{app.was}", was="{first}") until they are'
        " done, and rename it after that; to start without them, give --new-app (new_app=True)"
    )


def _listed(stranded: Mapping[str, int]) -> tuple[str, str]:
    """How many records wait where, and whose topics these are."""
    listed = ", ".join(f"{records} in {name}" for name, records in stranded.items())
    return listed, next(iter(stranded)).partition(".retry.")[0]


def _marked(at: Position, name: str) -> Position:
    """The progress of an old name, with the new one; it has to fit into a commit."""
    marked = with_note(with_note(at, BEGUN, ""), MOVED, name)
    if len(marked.metadata) <= METADATA_LIMIT:
        return marked
    # Whoever takes it over has read the whole of it; one that is killed before it has committed
    # that, and comes back, has as much of it as there is room for.
    words = [w for w in marked.metadata.split(" ") if not w.startswith(PREFIX)]
    room = METADATA_LIMIT - len(" ".join(words)) - 1
    beyond = encode(at.offset, decode(at), room)
    return marked._replace(metadata=" ".join([*words, beyond] if beyond else words))


def _clean(at: Position) -> Position:
    """Without the notes of its run on Spark and of the take-over, which mean nothing here."""
    for name in (RUN, BEGUN, MOVED):
        at = with_note(at, name, "")
    return at


def _apps(topics: Collection[str]) -> set[str]:
    """The names of apps, derived from topic names."""
    dead = {name.removesuffix(".dead") for name in topics if name.endswith(".dead")}
    return dead | {
        name.partition(".retry.")[0] for name in topics if _is_delay(name.partition(".retry.")[2])
    }


def _is_delay(text: str) -> bool:
    try:
        return bool(text) and milliseconds(text) > 0
    except ConfigurationError:
        return False


def _of(app: str, topic: str) -> bool:
    """Whether it is one of the app's own topics, by its name."""
    return topic == f"{app}.dead" or topic.startswith(f"{app}.retry.")
