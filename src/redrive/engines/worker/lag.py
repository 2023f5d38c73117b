"""LagMonitor: how far the app is, asked of Kafka now and then, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redrive.engines.ahead import Ahead, Dues, Place
from redrive.engines.figures import Batch, drained
from redrive.engines.words import LaneName, Until
from redrive.errors import RedriveError
from redrive.record import TopicPartition, partitions_of
from redrive.threads import OnDeath, start_thread
from redrive.tuning import (
    LOOK_CLOSE_WAIT,
    LOOK_EVERY,
    LOOK_EVERY_WHEN_ENDING,
    NEW_TOPICS_EVERY,
    NEWS_EVERY,
)

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.rules_watch import RulesWatch
    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.counting import Counting
    from redrive.engines.worker.partition import Partition
    from redrive.engines.worker.rejoining import Rejoining
    from redrive.engines.worker.retention_watch import RetentionWatch
    from redrive.engines.worker.subscription import Subscription
    from redrive.kafka.log import KafkaLog
    from redrive.kafka.progress import KafkaProgress
    from redrive.ports import Clock
    from redrive.processing.calls.scope import Scope

log: Final = logging.getLogger("redrive.worker")

Ends = dict[TopicPartition, int]


class LagMonitor:
    """What is ahead of the progress, in both lanes; and whether a run with an end is over."""

    def __init__(
        self,
        *,
        app: App,
        topics: Subscription,
        kafka_log: KafkaLog,
        progress: KafkaProgress,
        assignment: Assignment,
        scope: Scope,
        counting: Counting,
        clock: Clock,
        until: Until,
        rejoining: Rejoining,
        rules: RulesWatch,
        retention: RetentionWatch,
        on_death: OnDeath,
        waiting: Callable[[], int],
        on_topics: Callable[[Mapping[str, str]], None],
        on_growth: Callable[[], None],
        on_missing: Callable[[str, int], None],
    ) -> None:
        self.over = threading.Event()
        """Set when a run with an end is over."""
        self._app = app
        self._topics = topics
        self._kafka_log = kafka_log
        self._progress = progress
        self._assignment = assignment
        self._scope = scope
        self._counting = counting
        self._clock = clock
        self._until: Until = until
        self._rejoining = rejoining
        self._rules = rules
        self._retention = retention
        self._waiting = waiting
        self._on_topics = on_topics
        self._on_growth = on_growth
        self._on_missing = on_missing
        self._grown_at = monotonic()
        self._status: dict[LaneName, dict[str, Any]] = {"main": {}, "retry": {}}
        self._shares: dict[LaneName, Ahead] = {"main": Ahead(), "retry": Ahead()}
        self._dues = Dues(kafka_log.appended_since)
        self._trouble = ""
        self._lost: list[str] = []
        self._goals: dict[LaneName, Ends] = {}
        self._calm: int | None = None
        self._told: dict[LaneName, Counter[str]] = {}
        self._told_at = monotonic()
        self._closing = threading.Event()
        self._on_death = on_death
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look; of a run that ends with what is there, find out now what that is."""
        if self._until == "once":
            ends = self._ends()
            self._goals["main"] = {p: end for p, end in ends.items() if self._lane(p) == "main"}
            self._assignment.ends |= self._goals["main"]
            self._assignment.ends |= {p: 0 for p in ends if self._lane(p) == "retry"}
        self._thread = start_thread(self._run, name="redrive-looking", on_death=self._on_death)

    def status(self, lane: LaneName) -> dict[str, Any]:
        """What was seen last; `ahead` is of all partitions of the app."""
        return self._status[lane]

    def in_flight(self) -> dict[LaneName, int]:
        """How many records are in flight now, by lane."""
        partitions = list(self._assignment.partitions.values())
        return {
            lane: _in_flight(each for each in partitions if self._lane(each.place) == lane)
            for lane in self._status
        }

    def share(self, lane: LaneName) -> Ahead:
        """What is ahead in the partitions that this worker has."""
        return self._shares[lane]

    def close(self) -> None:
        """Look no more; whoever still waits for a broker is not waited for."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(LOOK_CLOSE_WAIT)

    def look_at_the_end(self) -> None:
        """Look once more, for the figures of the end; there are none where nobody answers."""
        if self._trouble or (self._thread is not None and self._thread.is_alive()):
            return
        start_thread(self.look, name="redrive-looking", on_death=_say_missing).join(LOOK_CLOSE_WAIT)

    def look(self) -> tuple[Ends, Mapping[TopicPartition, int]]:
        """Look once: where all partitions of the app end, and how far they are."""
        before = self._outcomes()
        bounds = self._bounds()
        ends = {place: end for place, (_, end) in bounds.items()}
        positions = self._positions(ends)
        self._note(bounds, positions)
        self._drain_lateness()
        self._tell_news()
        if self._until == "once":
            self._once(ends, positions)
        elif self._until == "empty":
            self._empty(before, ends, positions)
        return ends, positions

    def _run(self) -> None:
        every = LOOK_EVERY if self._until == "stopped" else LOOK_EVERY_WHEN_ENDING
        while not self._closing.wait(every):
            try:
                self._rules.look()
                self._measure()
                self._retention.look()
            except RedriveError as error:
                if self._closing.is_set():
                    return
                if not self._trouble:
                    log.warning("%s; still trying", error)
                self._trouble = str(error)
            else:
                if self._trouble:
                    log.warning("Kafka answers again")
                self._trouble = ""
            for status in self._status.values():
                status["trouble"] = self._trouble

    def _measure(self) -> None:
        try:
            self._look_for_topics()
            ends, positions = self.look()
            assigned = self._topics.shared_out
            self._rejoining.look(
                {p: end for p, end in ends.items() if p.topic in assigned}, positions
            )
        except RedriveError:
            raise
        except Exception:
            if self._until != "stopped":
                raise  # who else would end it?
            # A mistake of ours; the work itself goes on without these figures.
            log.exception("measuring the lag failed")

    def _look_for_topics(self) -> None:
        """Read delay topics that came while it ran: a version that was taken back parks there."""
        if self._until != "stopped" or monotonic() - self._grown_at < NEW_TOPICS_EVERY:
            return
        self._grown_at = monotonic()
        new = self._topics.grow()
        if new:
            log.info("%s: new; subscribed", ", ".join(new))
        if new or self._app.ordering == "strict":  # a rebalance may have found them before
            self._on_growth()

    def _ends(self) -> Ends:
        return {place: end for place, (_, end) in self._bounds().items()}

    def _bounds(self) -> dict[TopicPartition, tuple[int, int]]:
        found = self._kafka_log.topics(self._topics)
        for name in [each for each in self._topics if each not in found]:
            before = Ahead(**self._status["retry"].get("ahead", {}))
            self._on_missing(name, before.lag.get(name, 0))
        self._on_topics({name: topic_id for name, (topic_id, _) in found.items()})
        counts = {name: count for name, (_, count) in found.items()}
        return self._kafka_log.all_bounds(partitions_of(counts))

    def _positions(self, ends: Ends) -> Mapping[TopicPartition, int]:
        """How far each partition is: of those of other workers, as they have committed."""
        mine = {
            place: each.tracker.prefix
            if not self._app.guarantee.transactional or each.committed is None
            else each.committed.offset
            for place, each in list(self._assignment.partitions.items())
        }
        others = [place for place in ends if place not in mine]
        committed = self._progress.committed(others)
        return {**{place: position.offset for place, position in committed.items()}, **mine}

    def _note(
        self,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        assigned = dict(self._assignment.partitions)
        places = self._places(bounds, positions, assigned or bounds)
        delays = self._topics.delays
        for lane in self._status:
            topics = delays if lane == "retry" else self._app.handlers
            found = {place: each for place, each in places.items() if place.topic in topics}
            mine = {place: each for place, each in found.items() if place in assigned}
            self._shares[lane] = Ahead.of(topics, delays, mine)
            self._status[lane] = {
                "at": self._clock.now(),
                "ahead": asdict(Ahead.of(topics, delays, found)),
                "in_flight": _in_flight(assigned[place] for place in mine),
                "trouble": self._trouble,
                "lost": [*self._lost] if lane == "main" else (),
            }

    def _places(
        self,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        positions: Mapping[TopicPartition, int],
        mine: Collection[TopicPartition],
    ) -> dict[TopicPartition, Place]:
        """What is ahead in each partition.

        What is due is asked for of its own, as every worker does; one that has none, as at its
        end, asks for all.
        """
        spans = {
            place: (min(end, max(begin, positions.get(place, begin))), end)
            for place, (begin, end) in bounds.items()
        }
        delays = {
            place: self._topics.delays[place.topic]
            for place in spans
            if place.topic in self._topics.delays and place in mine
        }
        waiting = {place: spans[place] for place in delays}
        dues = self._dues.look(self._clock.now(), waiting, delays)
        return {place: Place(end - at) for place, (at, end) in spans.items()} | dues

    def note_lost(self, losses: Iterable[str]) -> None:
        """Remember records that were found to be gone."""
        self._lost += losses

    def _tell_news(self) -> None:
        """What was done since the last time, for whoever shows a line now and then."""
        now = monotonic()
        if now - self._told_at < NEWS_EVERY:
            return
        figures = self._counting.figures
        for lane in figures.lanes:
            counts = Counter(figures.counts(lane))
            done = counts - self._told.get(lane, Counter())
            if done:
                figures.news.append(Batch(lane, None, dict(done), now - self._told_at))
            self._told[lane] = counts
        self._told_at = now

    def _drain_lateness(self) -> None:
        self._counting.figures.late(drained(self._scope.lateness))

    def _once(self, ends: Ends, positions: Mapping[TopicPartition, int]) -> None:
        if not self._reached("main", positions) and not self._stuck(self._goals["main"], positions):
            return
        if "retry" not in self._goals:
            if self._undecided([place for place in ends if self._lane(place) == "retry"]):
                return
            self._goals["retry"] = self._due_by(self._clock.now())
            self._assignment.ends |= self._goals["retry"]
            for place, each in list(self._assignment.partitions.items()):
                each.end = self._assignment.ends.get(place, each.end)
        goals = {**self._goals["main"], **self._goals["retry"]}
        positions = self._positions(goals)
        if self._reached("retry", positions) or self._stuck(goals, positions):
            self.over.set()

    def _reached(self, lane: LaneName, positions: Mapping[TopicPartition, int]) -> bool:
        return all(positions.get(place, 0) >= goal for place, goal in self._goals[lane].items())

    def _due_by(self, now: int) -> Ends:
        ends = {place: end for place, end in self._ends().items() if self._lane(place) == "retry"}
        delays = {place: self._topics.delays[place.topic] for place in ends}
        since = self._kafka_log.appended_since({p: now - delay + 1 for p, delay in delays.items()})
        return {
            place: end if (later := since[place]) is None else min(later[0], end)
            for place, end in ends.items()
        }

    def _empty(self, before: int, ends: Ends, positions: Mapping[TopicPartition, int]) -> None:
        """Nothing ahead, seen twice, and nothing happened in between: nothing was on its way."""
        if any(positions.get(place, 0) < end for place, end in ends.items()):
            self._calm = None
            if self._stuck(ends, positions):
                self.over.set()
        elif self._undecided(ends):
            self._calm = None
        elif self._calm == before == self._outcomes():
            self.over.set()
        else:
            self._calm = before

    def _undecided(self, places: Collection[TopicPartition]) -> bool:
        """Whether what a transaction has written, perhaps one of this run, cannot be read yet."""
        return self._app.guarantee.transactional and bool(self._kafka_log.undecided(places))

    def _stuck(self, ends: Ends, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether all that is left waits for topics that refuse what is to be written."""
        behind = {place: end for place, end in ends.items() if positions.get(place, 0) < end}
        mine = [self._assignment.partitions.get(place) for place in behind]
        if not mine or None in mine:
            return False
        left = 0
        for each in filter(None, mine):
            if each.read_to < behind[each.place] and not (each.paused and each.in_flight):
                return False  # it is read on
            left += each.in_flight
        return left == self._waiting()

    def _outcomes(self) -> int:
        figures = self._counting.figures
        return sum(sum(figures.counts(lane).values()) for lane in figures.lanes)

    def _lane(self, place: TopicPartition) -> LaneName:
        return "retry" if place.topic in self._topics.delays else "main"


def _in_flight(partitions: Iterable[Partition]) -> int:
    return sum(each.in_flight - each.processor.not_due for each in partitions)


def _say_missing(error: BaseException) -> None:
    log.debug("the last figures are missing: %s", error)
