"""What must hold while processes come and go: each guarantee by itself, seen from outside."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Protocol, Self

from running import World

from redrive.processing.progress import done_beyond
from redrive.record import TopicPartition

Offsets = set[tuple[int, int]]
Note = dict[str, Any]


class Guarantee(Protocol):
    """One promise."""

    def check(self, sent: Offsets, notes: list[Note]) -> None:
        """Hold the promise against what handlers have told; `sent` is partition and offset."""
        ...


class EveryRecordProcessed:
    def check(self, sent: Offsets, notes: list[Note]) -> None:
        missing = sent - {_place(note) for note in _ended(notes)}
        assert not missing, f"{len(missing)} lost, such as {sorted(missing)[:5]}"


class OrderKept:
    """Nobody begins before all before it, of its key or partition, have ended at least once."""

    def __init__(self, lane: str) -> None:
        self._lane = lane

    def check(self, sent: Offsets, notes: list[Note]) -> None:
        lanes: dict[object, list[int]] = defaultdict(list)
        for note in notes:
            if note["what"] == "start":
                ahead = lanes[self._of(note)]
                if note["offset"] not in ahead:
                    ahead.append(note["offset"])
        for lane, offsets in lanes.items():
            assert offsets == sorted(offsets), f"{self._lane} {lane} was overtaken"
        done: Offsets = set()
        last: dict[object, tuple[int, int]] = {}
        for note in notes:
            lane, place = self._of(note), _place(note)
            if note["what"] == "end":
                done.add(place)
                continue
            before = last.get(lane)
            assert before is None or before in done or before == place, f"{place} overtook {before}"
            if before is None or place > before:
                last[lane] = place

    def _of(self, note: Note) -> object:
        return (note["partition"], note["key"] if self._lane == "key" else None)


class EffectsInOrder:
    """Of what ran more than once, the last time counts: those are in order, too."""

    def check(self, sent: Offsets, notes: list[Note]) -> None:
        lanes: dict[object, dict[int, int]] = defaultdict(dict)
        for time, note in enumerate(notes):
            if note["what"] == "end":
                lanes[note["partition"], note["key"]][note["offset"]] = time
        for lane, ends in lanes.items():
            assert sorted(ends, key=ends.__getitem__) == sorted(ends), f"{lane} is out of order"


class FewDuplicates:
    """Work that is repeated is counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    def check(self, sent: Offsets, notes: list[Note]) -> None:
        self.count = len(repeated(notes))
        assert self.count <= self._most, f"{self.count} ran more than once"


class CommittedIsComplete:
    """Committed offsets, and what is committed as done beyond them, are never ahead of the work.

    It watches from its start to its end, beside the run.
    """

    def __init__(self, world: World, topic: str) -> None:
        self._world = world
        self._topic = topic
        self.looks = 0
        self._wrong: list[str] = []
        self._last: dict[TopicPartition, int] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def check(self, sent: Offsets, notes: list[Note]) -> None:
        self.look(sent)
        assert not self._wrong, self._wrong[:5]

    def look(self, sent: Offsets) -> None:
        """Compare once: what is committed is asked for before what has ended."""
        committed = self._world.committed(self._topic)
        ended = {_place(note) for note in _ended(self._world.notes())}
        for place, position in committed.items():
            claimed = {offset for number, offset in sent if number == place.partition}
            beyond = done_beyond.decode(position)
            for offset in claimed:
                counted = offset < position.offset or any(a <= offset < b for a, b in beyond)
                if counted and (place.partition, offset) not in ended:
                    self._wrong.append(f"{place}@{offset} is committed and has not ended")
            if position.offset < self._last.get(place, 0):
                back = f"{place} went back from {self._last[place]} to {position.offset}"
                self._wrong.append(f"{back} when {len(ended)} had ended")
            self._last[place] = position.offset
        self.looks += 1

    def _watch(self) -> None:
        while not self._closing.wait(0.3):
            self.look(everything(self._world, self._topic))


def everything(world: World, topic: str) -> Offsets:
    """All records of a topic without gaps."""
    bounds = world.log.all_bounds(world.places(topic))
    return {
        (place.partition, offset)
        for place, (begin, end) in bounds.items()
        for offset in range(begin, end)
    }


def repeated(notes: Iterable[Note]) -> list[tuple[int, int]]:
    """Records whose handler began more than once."""
    starts = Counter(_place(note) for note in notes if note["what"] == "start")
    return [place for place, times in starts.items() if times > 1]


def _ended(notes: Iterable[Note]) -> Iterable[Note]:
    return (note for note in notes if note["what"] == "end")


def _place(note: Note) -> tuple[int, int]:
    return note["partition"], note["offset"]
