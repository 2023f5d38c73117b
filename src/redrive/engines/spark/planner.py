"""Planner: what runs next, from the group's committed offsets and nothing else.

It keeps nothing that a restart would miss: Spark's own offsets only count batches, and a lost, old
or foreign checkpoint folder cannot matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from redrive.delivery.refusing_topics import Ask
from redrive.engines import data_loss
from redrive.engines.ahead import Ahead, Dues, Place
from redrive.engines.offset_reset import View, begin_at, lost
from redrive.engines.spark import ranges
from redrive.engines.spark.committed_offsets import CommittedOffsets, Fence
from redrive.engines.spark.houses import Houses, claims
from redrive.engines.spark.marks import RivalError
from redrive.engines.spark.news import News
from redrive.engines.spark.outages.guarded_ranges import GuardedRanges
from redrive.engines.spark.outages.shared_book import SharedBook
from redrive.engines.spark.poison_pill import PoisonSearch
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.refused_ranges import RefusedRanges
from redrive.engines.spark.spec import Spec
from redrive.engines.words import LaneName
from redrive.kafka.errors import MissingTopicError, NoLeaderError
from redrive.parked_rules import ParkedRule, opened_to
from redrive.ports import Position
from redrive.processing.progress.notes import without_notes
from redrive.record import TopicPartition, partitions_of
from redrive.tuning import TOPICS_EVERY

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Clock, Progress


class PlannersLog(Protocol):
    """What a planner asks of Kafka."""

    def names(self, prefix: str = "") -> list[str]: ...

    def topics(self, names: Collection[str]) -> dict[str, tuple[str, int]]: ...

    def leaderless(self, names: Collection[str]) -> set[TopicPartition]: ...

    def all_bounds(
        self, partitions: Collection[TopicPartition], *, wait_for_leaders: bool
    ) -> dict[TopicPartition, tuple[int, int]]: ...

    def undecided(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]: ...

    def appended_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]: ...


@dataclass
class Status:
    """What a planner saw last; the driver reads it from a file."""

    lane: LaneName
    planned: int = 0
    """How often it has planned: one more each time."""
    at: int = 0
    ahead: Ahead = field(default_factory=Ahead)
    in_flight: int = 0
    """Of it, those of the batch under way."""
    reached: bool = False
    """Whether all is done that was there at the start, but for refused writes."""
    empty: bool = False
    """Whether there is nothing at all ahead, but for refused writes."""
    refused: int = 0
    """Records that stay where they are, because what was to be written was refused."""
    refusal: str = ""
    """Why."""
    lost: list[str] = field(default_factory=list)
    put_back: list[str] = field(default_factory=list)
    """Progress that the broker had forgotten."""
    trouble: str = ""
    fatal: str = ""
    stopped: bool = False

    def write(self, path: Path) -> None:
        """Replace the file in one step: the driver never reads half of it."""
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self)))
        beside.replace(path)


class Planner:
    """Plans the batches of one lane."""

    def __init__(
        self,
        app: App,
        spec: Spec,
        lane: LaneName,
        *,
        log: PlannersLog,
        progress: Progress,
        has_members: Callable[[], bool],
        clock: Clock,
        fence: Callable[[TopicPartition], Fence] | None = None,
        refusing: Ask = lambda _: {},
        rules: Callable[[], tuple[ParkedRule, ...]] = lambda: (),
        book: SharedBook | None = None,
    ) -> None:
        """With `fence`, what it commits itself is fenced as what tasks commit.

        `refusing` says which topics take no writes at all, `rules` what operators have said about
        parked records, `book` what is known of guards.
        """
        self._app = app
        self._spec = spec
        self._lane = lane
        self._log = log
        self._has_members = has_members
        self._clock = clock
        self._offsets = CommittedOffsets(app, spec, progress=progress, clock=clock, fence=fence)
        self._topics: dict[str, tuple[str, int]] = {}
        self._topics_at: int | None = None
        self._leaderless: set[TopicPartition] = set()
        self._recreated: set[str] = set()
        self._begun: dict[tuple[TopicPartition, str], int] = {}
        """Where partitions of topics without progress were to begin when they were seen first."""
        self._cutoff: int | None = None
        self._goal: dict[TopicPartition, int] | None = None
        self._goal_later: set[TopicPartition] = set()
        """Partitions that had no leader at the start: how far they go is not known yet."""
        self._houses = Houses(app) if app.ordering == "strict" else None
        """In strict order one lane plans all: source partitions together with their rooms."""
        self._plans_delays = lane == "retry" or self._houses is not None
        self._delays: dict[str, int] = dict(app.delay_topics) if self._plans_delays else {}
        self._dues = Dues(log.appended_since)
        self._search = PoisonSearch()
        self._died: list[Mapping[str, Any]] = []
        self._refused = RefusedRanges(refusing, clock)
        self._rules = rules
        outage = spec.outage_file(lane)
        self._guarded = GuardedRanges(
            lane, book, clock, begun=lambda: outage.unlink(missing_ok=True)
        )
        self._not_now: set[TopicPartition] = set()
        """Those of them that are not worth a try."""
        self._slots = 0
        self.status = Status(lane)

    def plan(self) -> list[list[Range]]:
        """The next batch: the ranges of each task. Nothing to do is an empty plan."""
        now = self._clock.now()
        news = News.taken_from(self._spec.batch_file(self._lane))
        self._offsets.reached(news.ends)
        self._slots = news.slots or self._slots
        self._refused.note(news)
        self._died += news.died  # nobody tells them again, and Kafka may not answer now
        views = self._look(now)
        starts = self._starts(views)
        self._refused.look(starts)
        self._not_now = self._refused.now()
        self._search.note(starts, self._died)
        self._died = []
        ends = {place: view.end for place, view in views.items()}
        ahead = self._ahead(now, starts, ends)
        self._note(now, ahead)
        known = ends
        rules = self._rules() if self._plans_delays else ()
        if self._plans_delays:
            due = {
                place: starts[place].offset + each.due
                for place, each in ahead.items()
                if place.topic in self._delays
            }
            opened = {
                place: self._opened(place, rules, at, ends[place]) for place, at in due.items()
            }
            ends = {**ends, **opened}
        ends = self._up_to_goal(starts, ends)
        ends |= {place: starts[place].offset for place in self._not_now & starts.keys()}
        ends = self._guarded.ends(starts, ends)
        found = self._shared_out(starts, ends)
        found = [each._replace(rules=rules) for each in found] if rules else found
        if self._houses is not None:
            found = self._houses.planned(now, found, self._topics, known)
        plan = self._search.tasks(found, self._spec.tasks(self._lane, self._slots))
        if self._houses is not None:
            self._offsets.claim(claims(plan), starts)
        return self._guarded.told(plan)

    def _shared_out(
        self, starts: Mapping[TopicPartition, Position], ends: Mapping[TopicPartition, int]
    ) -> list[Range]:
        """The ranges of all partitions, with as many records in all as a batch may have.

        Rooms come with all that they have: what waits there may wait for what stands behind it.
        """
        most, delays, ids = self._spec.max_records, self._delays, self._ids()
        if self._houses is None:
            return ranges.ahead(starts, ends, delays, most, ids)
        rooms = {place: start for place, start in starts.items() if place.topic in delays}
        sources = {place: start for place, start in starts.items() if place not in rooms}
        whole = sum(max(0, ends[place] - start.offset) for place, start in rooms.items())
        return [
            *ranges.ahead(sources, ends, delays, most, ids),
            *ranges.ahead(rooms, ends, delays, whole, ids),
        ]

    def _opened(
        self, place: TopicPartition, rules: tuple[ParkedRule, ...], due: int, end: int
    ) -> int:
        """Where a range ends: what is due, or what operators let run now."""
        topic_id, _ = self._topics[place.topic]
        return max(due, min(opened_to(rules, place, topic_id), end)) if rules else due

    def _up_to_goal(
        self, starts: Mapping[TopicPartition, Position], ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if self._goal is None:
            if self._plans_delays and self._undecided(starts):
                return ends  # what is parked by it may be due, and is seen later
            self._goal, self._goal_later = dict(ends), set(self._leaderless)
        self._goal |= {place: ends[place] for place in self._goal_later & ends.keys()}
        self._goal_later -= ends.keys()
        self.status.reached = not self._leaderless and all(
            # Not beyond its end: it may have been recreated, or its broker have lost some of it.
            starts[place].offset >= min(goal, ends[place])
            for place, goal in self._goal.items()
            if place in starts and place not in self._not_now
        )
        if self._spec.until != "once":
            return ends
        return {place: min(end, self._goal.get(place, 0)) for place, end in ends.items()}

    def _undecided(self, places: Collection[TopicPartition]) -> bool:
        """Whether what a transaction has written, perhaps one of this run, cannot be read yet.

        It is committed when its coordinator says so; what it wrote is there some time after that.
        """
        return (
            self._spec.until != "stopped"
            and self._app.guarantee.transactional
            and bool(self._log.undecided(places))
        )

    def _look(self, now: int) -> dict[TopicPartition, View]:
        """All partitions of the lane, with their progress and bounds."""
        if self._topics_at is None or now - self._topics_at >= TOPICS_EVERY:
            self._look_at_topics()
            self._topics_at = now
        committed = self._committed()
        return {
            place: View(*bounds, committed.get(place)) for place, bounds in self._bounds().items()
        }

    def _bounds(self) -> dict[TopicPartition, tuple[int, int]]:
        """The bounds of all partitions that have a leader: the others wait, and hold up nobody."""
        before = self._leaderless
        led = [each for each in self._places() if each not in before]
        try:
            return self._log.all_bounds(led, wait_for_leaders=False)
        except NoLeaderError:
            self._leaderless = self._log.leaderless(list(self._topics))
            if self._leaderless == before:
                raise
            return self._bounds()

    @property
    def waits_for(self) -> str:
        """What is not planned though it should be, and why."""
        waiting = ", ".join(map(str, sorted(self._leaderless)))
        if not waiting:
            return "; ".join(() if self._houses is None else self._houses.not_ready)
        return f"for a leader of {waiting}: check the brokers; the others go on"

    def _places(self) -> list[TopicPartition]:
        return partitions_of({topic: count for topic, (_, count) in self._topics.items()})

    def _committed(self) -> dict[TopicPartition, Position]:
        """What is committed for these very topics; what the broker has forgotten is put back."""
        found = self._offsets.read(self._places(), self._ids())
        if self._offsets.vanished(self._places(), found):
            # With its topic, perhaps: Kafka deletes the offsets of a topic that is deleted.
            self._look_at_topics()
            found = self._offsets.read(self._places(), self._ids())
        for topic in self._offsets.of_topics_before(found):
            self._note_recreated(topic, "since its progress was committed")
            found = {place: at for place, at in found.items() if place.topic != topic}
        gone = self._offsets.vanished(self._places(), found)
        if gone:
            self.status.put_back += [f"{place}@{at.offset}" for place, at in gone.items()]
            found |= self._offsets.put(gone)
        return found

    def _ids(self) -> dict[str, str]:
        return {name: topic_id for name, (topic_id, _) in self._topics.items()}

    def _look_at_topics(self) -> None:
        self._check_members()
        names = [
            *(self._app.handlers if self._lane == "main" else ()),
            *(self._waiting_topics() if self._plans_delays else ()),
        ]
        found = self._log.topics(names)
        for name in names:
            if name not in found:
                self._note_missing(name)
                continue
            known = self._topics.get(name, found[name])
            if known[0] != found[name][0]:
                self._note_recreated(name, "while this app ran")
        self._topics = found
        if self._leaderless:
            self._leaderless = self._log.leaderless(names)

    def _note_missing(self, name: str) -> None:
        """See that it is a delay topic that no policy has any more: it can be deleted."""
        if not self._app.can_do_without(name):
            raise MissingTopicError(name)
        if waiting := self.status.ahead.lag.get(name, 0):
            self._report_loss([data_loss.deleted(name, waiting)])
        del self._delays[name]
        self._offsets.forget(name)
        self._refused.forget(name)
        self._search.forget(name)

    def _note_recreated(self, topic: str, when: str) -> None:
        self._report_loss([data_loss.recreated_sentence(topic, when)])
        self._recreated.add(topic)
        self._offsets.forget(topic)
        self._refused.forget(topic)
        self._search.forget(topic)

    def _waiting_topics(self) -> Collection[str]:
        """The delay topics; also those that no policy uses any more, as records may wait there."""
        self._delays |= self._app.waiting_topics(self._log.names())
        return self._delays

    def _check_members(self) -> None:
        if self._has_members():
            raise RivalError(
                f"the app {self._app.name} is running as a worker: its group has active"
                " members, so Spark must not commit for it; stop the worker first"
            )

    def _starts(self, views: Mapping[TopicPartition, View]) -> dict[TopicPartition, Position]:
        starts = {
            place: view.committed for place, view in views.items() if view.committed is not None
        }
        news = self._first(views)
        gone = lost(views)
        if gone:
            self._report_loss([str(each) for each in gone])
            news.update({each.place: Position(each.begin) for each in gone})
        if news:
            # At once: records that come while nothing runs must not be passed by "latest".
            starts |= self._offsets.put(news)
        kept = self._offsets.keep(starts)
        return {place: without_notes(position) for place, position in kept.items()}

    def _first(self, views: Mapping[TopicPartition, View]) -> dict[TopicPartition, Position]:
        """Where partitions without progress begin: as was found when they were seen first.

        Fenced, they are committed one by one. If that comes to nothing for some, the others are no
        sign that these were added later.
        """
        waiting = {place: view for place, view in views.items() if place.topic in self._delays}
        sources = {place: view for place, view in views.items() if place not in waiting}
        begins = {
            **begin_at(sources, self._spec.start_from, self._recreated),
            **begin_at(waiting, "earliest", self._recreated),
        }
        first: dict[TopicPartition, Position] = {}
        for place, offset in begins.items():
            topic_id, _ = self._topics[place.topic]
            begun = self._begun.setdefault((place, topic_id), offset)
            first[place] = Position(max(begun, views[place].begin))
        return first

    def _report_loss(self, losses: list[str]) -> None:
        data_loss.report(self._app, losses, self.status.lost.extend)

    def _ahead(
        self,
        now: int,
        starts: Mapping[TopicPartition, Position],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, Place]:
        """What is ahead; of what waits, how much is due, or due very soon."""
        bounds = {
            place: (start.offset, max(start.offset, ends[place])) for place, start in starts.items()
        }
        found = {place: Place(end - start) for place, (start, end) in bounds.items()}
        if not self._plans_delays:
            return found
        self._cutoff = now if self._cutoff is None else self._cutoff
        horizon = self._cutoff if self._spec.until == "once" else now + self._spec.horizon
        waiting = {place: span for place, span in bounds.items() if place.topic in self._delays}
        delays = {place: self._delays[place.topic] for place in waiting}
        return {**found, **self._dues.look(horizon, waiting, delays)}

    def _note(self, now: int, ahead: Mapping[TopicPartition, Place]) -> None:
        status = self.status
        status.planned += 1
        status.at = now
        status.ahead = Ahead.of(self._topics, self._delays, ahead)
        status.refused, status.refusal = self._refused.records, self._refused.reason
        behind = any(each.lag for place, each in ahead.items() if place not in self._not_now)
        done = not behind and not self._leaderless
        status.empty = done and not self._undecided(ahead)
