"""CommittedOffsets: those of one lane's partitions, begun and kept alive by the planner.

Nobody on Spark joins the group, so brokers forget an offset some time after it was committed
(`offsets.retention.minutes`, 7 days by default), also under a run that is alive: the partition
would begin again, or be passed over. So what has not changed is committed again in time. And what
is gone nevertheless is put back from memory: when a group had members before, all of its offsets
are forgotten at once, that long after the last member left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from redrive.engines.fencing import side_by_side
from redrive.engines.offset_reset import is_of_another
from redrive.engines.spark import marks
from redrive.engines.spark.spec import Spec
from redrive.ports import Position
from redrive.processing.progress.done_beyond import METADATA_LIMIT, decode, still_at
from redrive.processing.progress.notes import CLAIM, MOVED, ROOM, RUN, noted, with_note
from redrive.record import TopicPartition, Write
from redrive.tuning import FENCED_AT_ONCE

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Clock, Progress


class Fence(Protocol):
    """A producer that has fenced off whoever had the partition before."""

    def commit(
        self, writes: Sequence[Write], positions: Mapping[TopicPartition, Position]
    ) -> None: ...


class CommittedOffsets:
    """The committed offsets of the partitions of one lane."""

    def __init__(
        self,
        app: App,
        spec: Spec,
        *,
        progress: Progress,
        clock: Clock,
        fence: Callable[[TopicPartition], Fence] | None,
    ) -> None:
        """With `fence`, an offset is committed only if nobody can have moved it meanwhile."""
        self._app = app
        self._spec = spec
        self._progress = progress
        self._clock = clock
        self._fence = fence
        self._ids: dict[str, str] = {}
        self._found: dict[TopicPartition, Position] = {}
        self._moved: set[TopicPartition] | None = None
        """Those that an app of another name had taken over before this run began."""
        self._known: dict[TopicPartition, Position] = {}
        self._since: dict[TopicPartition, int] = {}
        """When a partition's offset was committed, as far as is known."""

    def read(
        self, places: Sequence[TopicPartition], ids: Mapping[str, str]
    ) -> dict[TopicPartition, Position]:
        """What is committed, by whomever; a RivalError says that a newer run has begun.

        Or that the app goes on under another name: nobody else would notice that this one runs.
        """
        self._ids = dict(ids)
        old = marks.old_place(self._app)
        found = self._progress.committed([*places, old])
        app, run = self._app.name, self._spec.run
        marks.check_old_mark(app, run, found.pop(old, None), known=self._spec.old_mark)
        marks.check(app, run, found.values())
        moved = {place: name for place, at in found.items() if (name := noted(at, MOVED))}
        self._moved = {*moved} if self._moved is None else self._moved
        for place in moved.keys() - self._moved:
            raise marks.moved(app, moved[place])
        self._found = found
        return dict(found)

    def of_topics_before(self, found: Mapping[TopicPartition, Position]) -> set[str]:
        """The topics that were recreated since one of these was committed."""
        return {
            place.topic
            for place, position in found.items()
            if is_of_another(position, self._ids[place.topic])
        }

    def vanished(
        self, places: Iterable[TopicPartition], found: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, Position]:
        """What was committed when it was last looked at, and is not any more."""
        return {
            place: self._known[place]
            for place in places
            if place in self._known and place not in found
        }

    def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note what tasks have committed since it was last looked at.

        What was complete beyond that before still is.
        """
        for place, end in ends.items():
            known = self._known.get(place)
            if known is not None and end > known.offset:
                self._known[place] = still_at(end, decode(known), METADATA_LIMIT - ROOM)

    def forget(self, topic: str) -> None:
        """A topic was recreated: what is known is about the old one."""
        self._known = {place: at for place, at in self._known.items() if place.topic != topic}

    def put(self, news: Mapping[TopicPartition, Position]) -> dict[TopicPartition, Position]:
        """Commit these instead of what was read; returns what is committed then.

        Where it is fenced, that is what a task of another run committed meanwhile, if one did.
        """
        marked = {place: self._labelled(place, position) for place, position in news.items()}
        if self._fence is None:
            self._progress.commit(marked)
            done = marked
        else:
            done = side_by_side(marked, lambda place: self._put_fenced(place, marked[place]))
        now = self._clock.now()
        self._since.update(dict.fromkeys(done, now))
        return done

    def claim(
        self, claims: Mapping[TopicPartition, str], starts: Mapping[TopicPartition, Position]
    ) -> None:
        """Commit by which plan partitions are handled now: tasks of earlier plans find it."""
        self._progress.commit(
            {
                place: with_note(self._labelled(place, starts[place]), CLAIM, claim)
                for place, claim in claims.items()
            }
        )

    def _put_fenced(self, place: TopicPartition, position: Position) -> Position:
        assert self._fence is not None  # noqa: S101 -- asked by the only caller
        producer = self._fence(place)
        # Only now that the others are fenced off: how far did they come?
        found = marks.reached(place, self._ids[place.topic], self._progress)
        if found is not None and found != self._found.get(place):
            return found
        producer.commit([], {place: position})
        return position

    def keep(self, found: Mapping[TopicPartition, Position]) -> dict[TopicPartition, Position]:
        """Commit again what was committed long ago, or by another run; returns what is then.

        At the beginning that is everything: nobody knows how old it is. Where it is fenced, a few
        at a time, and first of all the first partition of each topic, which carries the mark.
        """
        now = self._clock.now()
        for place, position in found.items():
            known = self._known.get(place, position)
            if known != position and noted(position, RUN) == self._spec.run:
                self._since[place] = now
        due = [
            place
            for place in sorted(found, key=lambda each: (each.partition, each.topic))
            if not 0 <= now - self._since.get(place, -self._spec.keep_every) < self._spec.keep_every
        ]
        if self._fence is not None:
            firsts = sum(place.partition == 0 for place in due)
            due = due[: max(firsts, FENCED_AT_ONCE)]
        kept = self.put({place: found[place] for place in due}) if due else {}
        current = {**found, **kept}
        self._known |= current
        return current

    def _labelled(self, place: TopicPartition, position: Position) -> Position:
        topic_id = self._ids[place.topic]
        return marks.labelled(position, topic_id=topic_id, run=self._spec.run)
