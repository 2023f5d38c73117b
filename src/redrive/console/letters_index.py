"""LettersIndex: an app's dead letters by cause, counted once and then kept up to date.

A page must not read a million letters. What is kept is 21 bytes for each of them: its offset,
its group, its state, when it died, and which of its group comes next. It is a cache: everything in
it is in Kafka.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from redrive.console.first_waiting import FirstWaiting
from redrive.dead import DeadLetters, Group, Operation
from redrive.dead.groups import Groups
from redrive.dead.scan import Bounds, Found, Scan, bounds_of
from redrive.dead.showing import Seen
from redrive.dead.standing import lots
from redrive.dead.state_topic import Known, StateReader
from redrive.dead.states import STATES, UNSETTLED, state_of
from redrive.errors import NotReadyError
from redrive.kafka.errors import MissingTopicError
from redrive.record import Record
from redrive.tuning import CONSOLE_CATCH_UP_SECONDS, CONSOLE_INDEX_STEP, CONSOLE_RECOUNT_EVERY

HOUR: Final = 3_600_000
_HOURS: Final = 48
_SETTLED: Final = frozenset(STATES.index(state) for state in STATES if state not in UNSETTLED)


class Counted(NamedTuple):
    """The groups as they are counted now."""

    groups: list[Group]
    hours: dict[str, list[int]]
    """By group: how many died in each of the last hours, the oldest first."""
    counted: int
    total: int
    """How many there are to be counted, at most."""
    operations: list[Operation]
    waiting: dict[str, int]
    """By group: when the first letter died about which nobody has decided."""

    @property
    def complete(self) -> bool:
        """Whether all letters are counted."""
        return self.counted >= self.total


class LettersIndex:
    """Counts the letters of one dead topic. One thread refreshes, any may ask."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._lock = Lock()
        """Guards what is counted, and is never held while Kafka or the app is asked: pages wait for
        it."""
        self._reading = Lock()
        """Held by whoever reads what was done about the letters."""
        self._readings = 0
        """How many have begun."""
        self._has_read = False
        self._state = StateReader(letters.log, letters.topic)
        self._begun_at = 0.0
        self._topic_id = ""
        self._forget()
        self.version = 0

    def _forget(self) -> None:
        """Start counting from zero; what was done about letters stays known, by its topic's id."""
        self._groups = Groups(self._letters.seen)
        self._numbers: dict[str, int] = {}
        self._by_number: list[Group] = []
        self._hours: dict[str, Counter[int]] = defaultdict(Counter)
        self._offsets: dict[int, array[int]] = {}
        self._in_group: dict[int, array[int]] = {}
        self._states: dict[int, array[int]] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._waiting = FirstWaiting()
        self._counted_from: dict[int, int] = {}
        self._read: dict[int, int] = {}
        self._settled_to: dict[int, int] = {}
        """By partition, how many from the first on are settled, as far as somebody has asked."""

    @property
    def known(self) -> Known:
        """What was done about the letters, as of the last refresh."""
        return self._state.known

    def counted(self, now: int) -> Counted:
        """The groups, those with most open letters first."""
        with self._lock:
            groups = sorted(self._groups.largest_first(), key=lambda each: -_unsettled(each))
            last = now // HOUR
            hours = {
                name: [found[hour] for hour in range(last - _HOURS + 1, last + 1)]
                for name, found in self._hours.items()
            }
            total = sum(end - first for first, end in self._bounds.values())
            counted = sum(
                self._read.get(place, first) - first for place, (first, _) in self._bounds.items()
            )
            known = self.known  # somebody may be reading: lists are made of it at once
            found = map(known.standing, [*known.operations.values()])
            operations = sorted(found, key=lambda each: (each.at, each.id), reverse=True)
            waiting = {
                self._by_number[number].id: died
                for number, died in self._waiting.since(self._waits).items()
            }
            return Counted(groups, hours, counted, total, operations, waiting)

    def operation(self, name: str) -> Operation | None:
        """How an operation stands, with what its shards have done; None: it is not known."""
        known = self.known
        found = known.operations.get(name)
        return None if found is None else known.standing(found)

    def origins(self) -> set[str]:
        """The topics that letters come from."""
        with self._lock:
            return {
                topic for group in self._by_number for topic in group.topics if "(" not in topic
            }

    def first_unsettled(self) -> dict[int, int]:
        """By partition, the offset of the first letter about which nobody has decided."""
        found: dict[int, int] = {}
        with self._lock:
            for partition, states in self._states.items():
                offsets, at = self._offsets[partition], self._settled_to.get(partition, 0)
                # None that is settled, or was deleted, is ever open again: each is passed once.
                while at < len(states) and not self._waits(partition, at):
                    at += 1
                self._settled_to[partition] = at
                if at < len(states):
                    found[partition] = offsets[at]
        return found

    def _waits(self, partition: int, at: int) -> bool:
        """Whether nobody has decided about a letter; those that retention has deleted do not."""
        is_there = self._offsets[partition][at] >= self._bounds[partition][0]
        return is_there and self._states[partition][at] not in _SETTLED

    def refresh(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Count what is new, and note what was done about the others."""
        log, topic = self._letters.log, self._letters.topic
        try:
            bounds, topic_id = bounds_of(log, topic), log.topic_id(topic)
        except MissingTopicError:
            return
        with self._lock:
            if topic_id != self._topic_id or self._must_recount(bounds):
                self._forget()
                self._topic_id, self._begun_at = topic_id, monotonic()
            self._bounds = dict(bounds)
            for number, (first, _) in bounds.items():
                self._counted_from.setdefault(number, first)
            self.version += 1
        with self._reading:
            self._read_state()
        for number, (first, end) in bounds.items():
            while not stopping() and (start := max(first, self._read.get(number, first))) < end:
                self._count(number, start, min(end, start + CONSOLE_INDEX_STEP))

    def catch_up(self) -> None:
        """Note what was done about letters until now; new letters are not counted.

        If that takes long, what is known is shown: no page waits for a slow broker for ever.
        """
        before = self._readings
        if not self._reading.acquire(timeout=CONSOLE_CATCH_UP_SECONDS):
            self._check_has_read()
            return
        try:
            # What began after this was asked for has read it: many who ask read once.
            if self._readings == before:
                self._read_state()
        finally:
            self._reading.release()
        self._check_has_read()

    def trim(self, now: int) -> None:
        """Forget how many died in hours that are shown no longer."""
        first = now // HOUR - _HOURS + 1
        with self._lock:
            for name, found in self._hours.items():
                kept = {hour: died for hour, died in found.items() if hour >= first}
                self._hours[name] = Counter(kept)

    def _read_state(self) -> None:
        """Read what was done about letters; whoever calls it holds `_reading`."""
        self._readings += 1
        marked: list[tuple[int, int]] = []
        with suppress(MissingTopicError):
            marked = self._state.refresh()
        self._has_read = True
        with self._lock:
            for place in marked:
                self._note_mark(*place)
            self.version += bool(marked)

    def _check_has_read(self) -> None:
        if not self._has_read:
            raise NotReadyError(
                "what was done about the letters is still being read: look again in a moment"
            )

    def _must_recount(self, bounds: Bounds) -> bool:
        """Whether retention has deleted letters that are counted; not too often."""
        if monotonic() - self._begun_at < CONSOLE_RECOUNT_EVERY:
            return False
        return any(first > self._counted_from.get(at, first) for at, (first, _) in bounds.items())

    def _note_mark(self, partition: int, offset: int) -> None:
        """Something was done about a letter; one that is not counted yet is counted with it."""
        mark = self.known.marks.get(partition, offset)
        offsets = self._offsets.get(partition)
        if mark is None or offsets is None:
            return
        at = bisect_left(offsets, offset)
        if at < len(offsets) and offsets[at] == offset:
            states = self._by_number[self._in_group[partition][at]].states
            states[STATES[self._states[partition][at]]] -= 1
            states[mark.state] += 1
            self._states[partition][at] = STATES.index(mark.state)

    def _count(self, partition: int, start: int, end: int) -> None:
        """Count a range of one partition."""
        letters = self._letters
        scan = Scan(letters.log, letters.topic, dialect=letters.dialect, bounds={})
        for some in lots(scan.partition(partition, start, end), _record):
            found = [letters.seen(each.letter) for each in some]
            self._note(partition, found, found[-1].letter.record.offset + 1)
        self._note(partition, [], end)

    def _note(self, partition: int, found: list[Seen], end: int) -> None:
        """Count letters of one partition, up to an offset."""
        for seen in found:
            _ = seen.pattern  # by the app's decoders, which may hang: no page waits for that
        with self._lock:
            offsets = self._offsets.setdefault(partition, array("q"))
            in_group = self._in_group.setdefault(partition, array("I"))
            states = self._states.setdefault(partition, array("B"))
            for seen in found:
                letter = seen.letter
                # Looked up only now: what is done from here on is noted in what is counted here.
                mark = self.known.marks.get(partition, letter.record.offset)
                state = state_of(letter, mark)
                group = self._groups.add_seen(seen, state)
                offsets.append(letter.record.offset)
                in_group.append(self._number(group))
                self._waiting.add(in_group[-1], partition, letter.died)
                states.append(STATES.index(state))
                if letter.died is not None:
                    self._hours[group.id][letter.died // HOUR] += 1
            self._read[partition] = end
            self.version += 1

    def _number(self, group: Group) -> int:
        number = self._numbers.setdefault(group.id, len(self._by_number))
        if number == len(self._by_number):
            self._by_number.append(group)
        return number


def _record(found: Found) -> Record:
    return found.letter.record


def _unsettled(group: Group) -> int:
    return sum(group.states[state] for state in UNSETTLED)
