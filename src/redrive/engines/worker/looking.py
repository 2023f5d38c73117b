"""Looking: how far the app is, asked of Kafka now and then, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redrive.engines.figures import Batch
from redrive.engines.words import Lane, Until
from redrive.errors import RedriveError
from redrive.record import TopicPartition
from redrive.threads import OnDeath, start_thread

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.figures import Counting
    from redrive.engines.worker.rejoining import Rejoining
    from redrive.kafka.log import KafkaLog
    from redrive.kafka.progress import KafkaProgress
    from redrive.ports import Clock
    from redrive.processing.scope import Scope

log: Final = logging.getLogger("redrive.worker")

_EVERY: Final = 1.0
_NEWS_EVERY: Final = 5.0
_EVERY_WHEN_ENDING: Final = 0.2
Ends = dict[TopicPartition, int]


class Looking:
    """What is ahead of the progress, in both lanes; and whether a run that shall end is over."""

    def __init__(
        self,
        *,
        app: App,
        topics: Collection[str],
        kafka_log: KafkaLog,
        progress: KafkaProgress,
        assignment: Assignment,
        scope: Scope,
        counting: Counting,
        clock: Clock,
        until: Until,
        rejoining: Rejoining,
        on_death: OnDeath,
        waiting: Callable[[], int],
        on_topics: Callable[[Mapping[str, str]], None],
    ) -> None:
        self.over = threading.Event()
        """Set when a run that shall end is over."""
        self._app = app
        self._topics = topics
        self._log = kafka_log
        self._progress = progress
        self._assignment = assignment
        self._scope = scope
        self._counting = counting
        self._clock = clock
        self._until: Until = until
        self._rejoining = rejoining
        self._waiting = waiting
        self._on_topics = on_topics
        self._status: dict[Lane, dict[str, Any]] = {"main": {}, "retry": {}}
        self._trouble = ""
        self._lost: list[str] = []
        self._goals: dict[Lane, Ends] = {}
        self._calm: int | None = None
        self._told: dict[Lane, Counter[str]] = {}
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

    def status(self, lane: Lane) -> dict[str, Any]:
        """What was seen last."""
        return self._status[lane]

    def close(self) -> None:
        """Look no more."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def look_at_the_end(self) -> None:
        """Look once more, for the figures of the end; there are none where nobody answers."""
        try:
            self.look()
        except RedriveError as error:
            log.debug("the last figures are missing: %s", error)

    def look(self) -> tuple[Ends, Mapping[TopicPartition, int]]:
        """Look once: where all partitions of the app end, and how far they are."""
        before = self._outcomes()
        ends = self._ends()
        positions = self._positions(ends)
        self._note(ends, positions)
        self._drain_lateness()
        self._tell_news()
        if self._until == "once":
            self._once(positions)
        elif self._until == "empty":
            self._empty(before, ends, positions)
        return ends, positions

    def _run(self) -> None:
        every = _EVERY if self._until == "stopped" else _EVERY_WHEN_ENDING
        while not self._closing.wait(every):
            try:
                self._rejoining.look(*self.look())
            except RedriveError as error:
                if not self._trouble:
                    log.warning("%s; goes on trying", error)
                self._trouble = str(error)
            except Exception:
                if self._until != "stopped":
                    raise  # who else would end it?
                # A mistake of ours; the work itself goes on without these figures.
                log.exception("looking failed")
            else:
                if self._trouble:
                    log.warning("Kafka answers again")
                self._trouble = ""
            for status in self._status.values():
                status["trouble"] = self._trouble

    def _ends(self) -> Ends:
        found = self._log.topics(self._topics)
        self._on_topics({name: topic_id for name, (topic_id, _) in found.items()})
        places = [
            TopicPartition(name, n) for name, (_, count) in found.items() for n in range(count)
        ]
        return {place: end for place, (_, end) in self._log.all_bounds(places).items()}

    def _positions(self, ends: Ends) -> Mapping[TopicPartition, int]:
        """How far each partition is: of those of other workers, as they have committed."""
        mine = {
            place: each.tracker.prefix
            if self._app.delivery != "transaction" or each.committed is None
            else each.committed.offset
            for place, each in list(self._assignment.partitions.items())
        }
        others = [place for place in ends if place not in mine]
        committed = self._progress.committed(others)
        return {**{place: position.offset for place, position in committed.items()}, **mine}

    def _note(self, ends: Ends, positions: Mapping[TopicPartition, int]) -> None:
        assigned = list(self._assignment.partitions.values())
        due: dict[str, int] = {}
        for each in assigned:
            first = each.processor.next_held()
            if first is not None:
                topic = each.place.topic
                due[topic] = min(first, due.get(topic, first))
        for lane in self._status:
            ahead = {
                place: max(0, end - positions.get(place, 0))
                for place, end in ends.items()
                if self._lane(place) == lane
            }
            status: dict[str, Any] = {
                "at": self._clock.now(),
                "lag": sum(ahead.values()),
                "in_flight": sum(
                    each.in_flight - each.processor.held
                    for each in assigned
                    if self._lane(each.place) == lane
                ),
                "trouble": self._trouble,
                "lost": [*self._lost] if lane == "main" else (),
            }
            if lane == "retry":
                status["parked"] = dict.fromkeys(self._app.delay_topics, 0)
                for place, count in ahead.items():
                    status["parked"][place.topic] = status["parked"].get(place.topic, 0) + count
                status["next_due"] = due
            self._status[lane] = status

    def note_lost(self, told: list[str]) -> None:
        """Take note of records that were found to be gone."""
        self._lost += told

    def _tell_news(self) -> None:
        """What was done since the last time, for whoever shows a line now and then."""
        now = monotonic()
        if now - self._told_at < _NEWS_EVERY:
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
        lateness = self._scope.lateness
        self._counting.figures.late([lateness.popleft() for _ in range(len(lateness))])

    def _once(self, positions: Mapping[TopicPartition, int]) -> None:
        if not self._reached("main", positions) and not self._stuck(self._goals["main"], positions):
            return
        if "retry" not in self._goals:
            self._goals["retry"] = self._due_by(self._clock.now())
            self._assignment.ends |= self._goals["retry"]
            for place, each in list(self._assignment.partitions.items()):
                each.end = self._assignment.ends.get(place, each.end)
        ends = {**self._goals["main"], **self._goals["retry"]}
        positions = self._positions(ends)
        if self._reached("retry", positions) or self._stuck(ends, positions):
            self.over.set()

    def _reached(self, lane: Lane, positions: Mapping[TopicPartition, int]) -> bool:
        return all(positions.get(place, 0) >= goal for place, goal in self._goals[lane].items())

    def _due_by(self, now: int) -> Ends:
        ends = {place: end for place, end in self._ends().items() if self._lane(place) == "retry"}
        delays = {place: self._app.delay_of(place.topic) or 0 for place in ends}
        since = self._log.appended_since({p: now - delay + 1 for p, delay in delays.items()})
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
        elif self._calm == before == self._outcomes():
            self.over.set()
        else:
            self._calm = before

    def _stuck(self, ends: Ends, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether all that is left waits for topics that refuse what is to be written."""
        behind = {place: end for place, end in ends.items() if positions.get(place, 0) < end}
        mine = [self._assignment.partitions.get(place) for place in behind]
        if not mine or None in mine:
            return False
        left = 0
        for each in filter(None, mine):
            if not each.paused and each.read_to < behind[each.place]:
                return False
            left += each.in_flight
        return left == self._waiting()

    def _outcomes(self) -> int:
        figures = self._counting.figures
        return sum(sum(figures.counts(lane).values()) for lane in figures.lanes)

    def _lane(self, place: TopicPartition) -> Lane:
        return "main" if self._app.delay_of(place.topic) is None else "retry"
