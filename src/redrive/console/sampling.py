"""Sampling: looks at an app's topics every few seconds, once for all who watch the page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from threading import Event, Lock
from time import monotonic
from typing import Final

from redrive.clock import WallClock
from redrive.console.endpoints import Endpoints, Seen
from redrive.console.flow import Flow, Kind, Look, Node, Spot, nodes
from redrive.console.retention import Kept, Retention
from redrive.console.stillness import Stillness
from redrive.console.trends import Point, Trends
from redrive.console.watched import Watched
from redrive.engines.ahead import Dues, Place
from redrive.errors import RedriveError
from redrive.kafka.groups import Member, members_of
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ports import Clock
from redrive.record import TopicPartition, partitions_of
from redrive.threads import start_thread
from redrive.tuning import CONSOLE_LOOK_EVERY, CONSOLE_TOPICS_EVERY

log: Final = logging.getLogger("redrive.console")


class Sampler:
    """What is going on in one app. Reads only topics of that app."""

    def __init__(
        self,
        watched: Watched,
        endpoints: Endpoints,
        *,
        more_sources: Callable[[], Iterable[str]] = tuple,
        past: Callable[[], Iterable[Point]] = tuple,
        clock: Clock | None = None,
        unsettled: Callable[[], Mapping[int, int]] = dict,
    ) -> None:
        """`more_sources`: source topics of an app whose code is not known; `past`: what was.

        `unsettled`: by partition, the first letter about which nobody has decided.
        """
        self._watched = watched
        self._endpoints = endpoints
        self._more_sources = more_sources
        self._past = past
        self._clock = WallClock() if clock is None else clock
        self._dues = Dues(watched.log.appended_since)
        self._names: list[str] = []
        self._names_at = -CONSOLE_TOPICS_EVERY
        self._before: Look | None = None
        self._stillness = Stillness()
        self._unsettled = unsettled
        self._letter_times: dict[tuple[int, int], int | None] = {}
        """When letters died that waited first at the last look, by partition and offset."""
        self._retention = Retention(
            watched.admin, KafkaTopics(watched.settings, admin=watched.admin)
        )
        self._has_members = False
        self._has_members_at = -CONSOLE_TOPICS_EVERY
        self._ended = Event()
        self._lock = Lock()
        self.flow = Flow()
        self.seen: tuple[Seen, ...] = ()
        """What runs say of themselves."""
        self.kept = Kept()
        self.trends = Trends()
        self.version = 0
        """Grows with each look."""

    def start(self) -> None:
        """Begin to look."""
        start_thread(self._run, name=f"redrive-console-{self._watched.name}", on_death=_report)

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def look(self) -> None:
        """Look once."""
        with self._lock:
            try:
                self.seen = self._endpoints.look()
                self.flow = self._look()
                self.trends.add(self._point())
                there = [node.topic for node in self.flow.nodes if not node.missing]
                self.kept = self._retention.look(there)
            except Exception as error:  # noqa: BLE001 -- the page says so, and the next look may work
                self.flow = Flow(self.flow.nodes, told(error), self.flow.at, self.flow.members)
            self.version += 1

    def _run(self) -> None:
        self.look()
        try:
            self.trends.begin_with(self._past())
        except Exception:
            log.exception("the hours before the console was started are not shown")
        while not self._ended.wait(CONSOLE_LOOK_EVERY):
            self.look()

    def _look(self) -> Flow:
        now, kinds = self._clock.now(), self._kinds()
        members = self._members()
        counts = {topic: count for topic, (_, count) in self._watched.log.topics([*kinds]).items()}
        look = self._offsets(counts, kinds)
        delays = self._watched.app.waiting_topics(kinds)
        found = nodes(
            kinds,
            look,
            self._before,
            delays=delays,
            dues=self._due(now, look, delays),
            oldest=self._oldest(look, kinds) | self._oldest_letter(look),
        )
        self._before = look
        found = self._with_stillness(now, found, look, _attended(members, kinds))
        named = None if members is None else {each.name: len(each.places) for each in members}
        return Flow(found, "", now, named, self._stillness.quiet_since())

    def _members(self) -> list[Member] | None:
        """The members of the app's group; None: it may have some, and does not tell which.

        It does not while it rebalances, and groups of the new protocol never do.
        """
        found = members_of(self._watched.admin, self._watched.name)
        if found is not None:
            return found
        if monotonic() - self._has_members_at >= CONSOLE_TOPICS_EVERY:
            # All groups of the cluster are listed for this: not with every look.
            self._has_members_at = monotonic()
            self._has_members = self._may_have_members()
        return None if self._has_members else []

    def _may_have_members(self) -> bool:
        try:
            return self._watched.admin.has_members(self._watched.name)
        except RedriveError as error:  # all brokers are asked, and one of them may be away
            log.info("whether %s has members cannot be asked: %s", self._watched.name, error)
            return True

    def _with_stillness(
        self, now: int, found: tuple[Node, ...], look: Look, attended: Collection[str]
    ) -> tuple[Node, ...]:
        read = {node.topic for node in found if node.kind in ("source", "delay")}
        committed = {
            place: spot.committed for place, spot in look.spots.items() if place.topic in read
        }
        waiting = [node.topic for node in found if node.waiting]
        self._stillness.look(now, committed, waiting, attended)
        return tuple(
            replace(node, unread_since=self._stillness.unread_since(node.topic)) for node in found
        )

    def _kinds(self) -> dict[str, Kind]:
        """The app's topics: sources, delays, dead, outbound."""
        app = self._watched.app
        if monotonic() - self._names_at >= CONSOLE_TOPICS_EVERY:
            # Among thousands of topics: not with every look.
            self._names, self._names_at = self._watched.log.names(f"{app.name}."), monotonic()
        kinds: dict[str, Kind] = dict.fromkeys(
            [*self._watched.sources, *self._more_sources()], "source"
        )
        delays = {**app.waiting_topics(self._names), **app.delay_topics}
        kinds |= dict.fromkeys(sorted(delays, key=lambda each: delays[each]), "delay")
        kinds[app.dead_topic] = "dead"
        return kinds | dict.fromkeys(app.outbound_topics, "outbound")

    def _offsets(self, counts: dict[str, int], kinds: dict[str, Kind]) -> Look:
        places = partitions_of(counts)
        bounds = self._watched.log.all_bounds(places)
        read = [place for place in places if kinds[place.topic] in ("source", "delay")]
        committed = self._watched.progress.committed(read)
        spots = {
            place: Spot(*bounds[place], committed[place].offset if place in committed else None)
            for place in places
        }
        return Look(monotonic(), spots)

    def _due(self, now: int, look: Look, delays: dict[str, int]) -> dict[TopicPartition, Place]:
        mine = {place: spot for place, spot in look.spots.items() if place.topic in delays}
        bounds = {
            place: (max(spot.first, spot.committed or 0), spot.end) for place, spot in mine.items()
        }
        return self._dues.look(now, bounds, {place: delays[place.topic] for place in mine})

    def _oldest(self, look: Look, kinds: dict[str, Kind]) -> dict[str, int]:
        """When the oldest unhandled record of each source topic was written, roughly.

        Of the partition that is furthest behind: Kafka has no lookup from offset to time, so one
        record is read for each topic.
        """
        found: dict[str, int] = {}
        for topic in (name for name, kind in kinds.items() if kind == "source"):
            behind = [
                (spot.lag, place, spot)
                for place, spot in look.spots.items()
                if place.topic == topic and spot.lag
            ]
            if behind:
                _, place, spot = max(behind, key=lambda each: each[0])
                written = self._written(place, max(spot.first, spot.committed or 0), spot.end)
                if written is not None:
                    found[topic] = written
        return found

    def _oldest_letter(self, look: Look) -> dict[str, int]:
        """When the oldest letter about which nobody has decided was written."""
        topic, known = self._watched.app.dead_topic, self._letter_times
        first = self._unsettled()
        self._letter_times = {
            (partition, offset): known[partition, offset]
            if (partition, offset) in known
            else self._written(place, offset, look.spots[place].end)
            for partition, offset in first.items()
            if (place := TopicPartition(topic, partition)) in look.spots
        }
        written = [each for each in self._letter_times.values() if each is not None]
        return {topic: min(written)} if written else {}

    def _written(self, place: TopicPartition, start: int, end: int) -> int | None:
        """When the first record from an offset on was written."""
        batch = next(iter(self._watched.log.batches(place, start, end, size=1)), [])
        return batch[0].timestamp if batch else None

    def _point(self) -> Point:
        flow = self.flow
        late = [each.lateness_p99 for each in self.seen if each.lateness_p99 is not None]
        handled = flow.handled()
        return Point(
            flow.at, handled, flow.parked(), flow.dead(), flow.lag(), max(late, default=None)
        )


def _attended(members: Collection[Member] | None, topics: Collection[str]) -> Collection[str]:
    """The topics that members are assigned to; all of them, if they do not tell."""
    if members is None:
        return topics
    return {place.topic for each in members for place in each.places}


def told(error: Exception) -> str:
    """What went wrong, for the page; what was not foreseen is in the log as well."""
    if isinstance(error, RedriveError):
        return str(error)
    log.error("the console could not read Kafka: %r", error, exc_info=error)
    return f"the console could not read Kafka: {error!r}"


def _report(error: BaseException) -> None:
    log.error("the console stopped refreshing: %r", error)
