"""States of dead letters: what was done about each, as compact as a million of them need."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from copy import deepcopy
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from redrive.dead.letter import Letter

State = Literal["open", "failed-again", "replayed", "discarded"]
"""`open`: nothing was done about it; `failed-again`: it was replayed, and this is what died of
that; `replayed`: its copy is on its way or handled; `discarded`: somebody decided against it."""
Marked = Literal["replayed", "discarded"]
"""States that somebody has put letters into."""
STATES: Final = ("open", "failed-again", "replayed", "discarded")
UNSETTLED: Final = ("open", "failed-again")
"""States of letters about which nobody has decided yet."""


_REMOVED: Final = 0
"""The number of no mark at all."""


class Mark(NamedTuple):
    """What was done about a letter, and in which operations, the last one last."""

    state: Marked
    operations: tuple[str, ...]


class Marks:
    """The marks of one dead topic, by partition and offset: 12 bytes for each letter.

    Threads share them: the console notes what is done while its pages are made.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._offsets: dict[int, array[int]] = {}
        self._numbers: dict[int, array[int]] = {}
        self._unsorted: set[int] = set()
        self._marks: list[Mark | None] = [None]
        self._known: dict[Mark | None, int] = {None: _REMOVED}

    def __len__(self) -> int:
        with self._lock:
            return sum(len(self._sorted(partition)[0]) for partition in self._offsets)

    def __getstate__(self) -> dict[str, Any]:
        """For tasks of Spark; a lock stays in its process."""
        with self._lock:
            # A copy: pickling goes on after the lock is given back.
            return deepcopy({name: each for name, each in vars(self).items() if name != "_lock"})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def add(self, partition: int, offset: int, mark: Mark | None) -> None:
        """Remember it; a later one for the same letter counts instead. None: it was removed."""
        with self._lock:
            number = self._known.get(mark)
            if number is None:
                number = self._known[mark] = len(self._marks)
                self._marks.append(mark)
            offsets = self._offsets.setdefault(partition, array("q"))
            if mark is None or (offsets and offset <= offsets[-1]):
                self._unsorted.add(partition)
            offsets.append(offset)
            self._numbers.setdefault(partition, array("I")).append(number)

    def get(self, partition: int, offset: int) -> Mark | None:
        """What was done about the letter at that place; None: nothing."""
        with self._lock:
            offsets, numbers = self._sorted(partition)
            at = bisect_left(offsets, offset)
            if at == len(offsets) or offsets[at] != offset:
                return None
            return self._marks[numbers[at]]

    def within(self, partition: int, start: int, end: int) -> Marks:
        """Those of a range of one partition: all that whoever reads the range needs."""
        found = Marks()
        with self._lock:
            offsets, numbers = self._sorted(partition)
            for at in range(bisect_left(offsets, start), bisect_left(offsets, end)):
                found.add(partition, offsets[at], self._marks[numbers[at]])
        return found

    @property
    def partitions(self) -> list[int]:
        """Those that have marks."""
        with self._lock:
            return sorted(self._offsets)

    def before(self, partition: int, offset: int | None = None) -> Iterator[int]:
        """The offsets of all marked letters before that one; None: of all letters."""
        with self._lock:
            offsets, _ = self._sorted(partition)
            found = offsets[:] if offset is None else offsets[: bisect_left(offsets, offset)]
        yield from found

    def _sorted(self, partition: int) -> tuple[array[int], array[int]]:
        empty: array[int] = array("q")
        offsets = self._offsets.get(partition, empty)
        numbers = self._numbers.get(partition, empty)
        if partition in self._unsorted:
            self._unsorted.discard(partition)
            # Those added later come later among equals: the last one counts.
            order = sorted(range(len(offsets)), key=offsets.__getitem__)
            last = [
                at
                for at, after in zip(order, [*order[1:], None], strict=True)
                if (after is None or offsets[after] != offsets[at]) and numbers[at] != _REMOVED
            ]
            offsets = self._offsets[partition] = array("q", (offsets[at] for at in last))
            numbers = self._numbers[partition] = array("I", (numbers[at] for at in last))
        return offsets, numbers


def state_of(letter: Letter, mark: Mark | None) -> State:
    """The state of a letter, given what was done about it."""
    if mark is not None:
        return mark.state
    return "failed-again" if letter.replay_count else "open"
