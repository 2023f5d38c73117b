"""States of dead letters: what was done about each, as compact as a million of them need."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from redrive.dead.letter import Letter

State = Literal["open", "failed-again", "replayed", "discarded"]
"""`open`: nothing was done about it; `failed-again`: it was driven again, and this is what died of
that; `replayed`: its copy is on its way or handled; `discarded`: somebody decided against it."""
STATES: Final = ("open", "failed-again", "replayed", "discarded")
UNSETTLED: Final = ("open", "failed-again")
"""States of letters about which nobody has decided yet."""


class Mark(NamedTuple):
    """What was done about a letter, and in which operations, the last one last."""

    state: Literal["replayed", "discarded"]
    operations: tuple[str, ...]


class Marks:
    """The marks of one dead topic, by partition and offset: 12 bytes for each letter."""

    def __init__(self) -> None:
        self._offsets: dict[int, array[int]] = {}
        self._numbers: dict[int, array[int]] = {}
        self._unsorted: set[int] = set()
        self._marks: list[Mark] = []
        self._known: dict[Mark, int] = {}

    def __len__(self) -> int:
        return sum(len(self._sorted(partition)[0]) for partition in self._offsets)

    def add(self, partition: int, offset: int, mark: Mark) -> None:
        """Remember it; a later one for the same letter counts instead."""
        number = self._known.get(mark)
        if number is None:
            number = self._known[mark] = len(self._marks)
            self._marks.append(mark)
        offsets = self._offsets.setdefault(partition, array("q"))
        if offsets and offset <= offsets[-1]:
            self._unsorted.add(partition)
        offsets.append(offset)
        self._numbers.setdefault(partition, array("I")).append(number)

    def get(self, partition: int, offset: int) -> Mark | None:
        """What was done about the letter at that place; None: nothing."""
        offsets, numbers = self._sorted(partition)
        at = bisect_left(offsets, offset)
        if at == len(offsets) or offsets[at] != offset:
            return None
        return self._marks[numbers[at]]

    def before(self, partition: int, offset: int) -> Iterator[int]:
        """The offsets of all marked letters before that one."""
        offsets, _ = self._sorted(partition)
        yield from offsets[: bisect_left(offsets, offset)]

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
                if after is None or offsets[after] != offsets[at]
            ]
            offsets = self._offsets[partition] = array("q", (offsets[at] for at in last))
            numbers = self._numbers[partition] = array("I", (numbers[at] for at in last))
        return offsets, numbers


def state_of(letter: Letter, mark: Mark | None) -> State:
    """The state of a letter, given what was done about it."""
    if mark is not None:
        return mark.state
    return "failed-again" if letter.replay_count else "open"
