"""PoisonSearch: which record kills its Python worker? Found by halves, buried only on proof.

The planner plans what is suspected alone, each range in a task of its own. The driver says whose
Python worker died (`lost_tasks.py`); the committed offsets say what was harmless. The proof is a
worker that died twice with one record alone, which it had begun with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from redrive.engines.spark import ranges
from redrive.engines.spark.halving import PROOF, Suspects
from redrive.engines.spark.ranges import Range
from redrive.ports import Position
from redrive.record import TopicPartition


class PoisonSearch:
    """The suspected ranges of one lane, and how they are tried."""

    def __init__(self) -> None:
        self._suspects = Suspects()
        self._tried: list[Range] = []
        self._proven: dict[TopicPartition, int] = {}
        """The offset of the record that kills its Python worker."""
        self._turn = 0
        self._turns: dict[TopicPartition, int] = {}
        """Of each unit with suspects: how often one of them, or the rest, had its turn."""

    def note(
        self, starts: Mapping[TopicPartition, Position], died: Sequence[Mapping[str, Any]]
    ) -> None:
        """Note what became of the last batch: what was harmless, and whose worker died."""
        self._note_what_passed(starts)
        self._note_what_waits(starts, died)
        # What is there by now is another record: its topic was recreated, or its records deleted.
        self._proven = {at: n for at, n in self._proven.items() if _is_at(starts.get(at), n)}
        self._note_deaths(died)

    def forget(self, topic: str) -> None:
        """A topic is gone, or was recreated: what is known is about the records of the old one."""
        self._suspects.forget(topic)
        self._proven = {at: n for at, n in self._proven.items() if at.topic != topic}
        self._tried = [each for each in self._tried if each.topic != topic]

    def tasks(self, found: Sequence[Range], most: int) -> list[list[Range]]:
        """The ranges of each task: what is suspected alone, the others together."""
        jobs = self._suspects.share_out(found)
        alone = [job[0] for job in jobs if job[0].place in self._suspects]
        together = [each for job in jobs for each in job if each.place not in self._suspects]
        # Never so many that nobody else has a task: the rest has its turn in the next batch.
        room = max(1, most - bool(together))
        chosen = self._chosen(alone, {each.unit for each in together})
        first = self._turn % len(chosen) if chosen else 0
        self._turn += room
        self._tried = [
            each._replace(search="proven" if self._is_proven(each) else "alone")
            for each in (chosen[first:] + chosen[:first])[:room]
        ]
        units = {each.unit for each in self._tried}
        others = [each for each in together if each.unit not in units]
        packed = ranges.pack(others, max(1, most - len(self._tried)))
        return [*([each] for each in self._tried), *packed]

    def _chosen(self, alone: Sequence[Range], others: Collection[TopicPartition]) -> list[Range]:
        """One suspect of each unit at most, in turns: others of its unit may have to run first."""
        by_unit: dict[TopicPartition, list[Range | None]] = {}
        for each in alone:
            by_unit.setdefault(each.unit, []).append(each)
        chosen: list[Range] = []
        for unit, suspects in by_unit.items():
            turns = [*suspects, *([None] if unit in others else [])]
            turn = self._turns.get(unit, 0)
            self._turns[unit] = turn + 1
            if (mine := turns[turn % len(turns)]) is not None:
                chosen.append(mine)
        return chosen

    def _note_what_passed(self, starts: Mapping[TopicPartition, Position]) -> None:
        for each in self._tried:
            at = starts.get(each.place)
            if at is not None and at.offset >= each.end:
                self._suspects.passed([each])
                self._proven.pop(each.place, None)

    def _note_what_waits(
        self, starts: Mapping[TopicPartition, Position], died: Sequence[Mapping[str, Any]]
    ) -> None:
        """In strict order, what was tried alone may wait for what stands behind it."""
        dead = {TopicPartition(*each[:2]) for death in died for each in death["ranges"]}
        for each in self._tried:
            at = starts.get(each.place)
            # One that is proven waits for nobody, and what is tried with it would be buried, too.
            stands = each.search == "alone" and at is not None and at.offset == each.start
            if stands and each.house is not None and each.place not in dead:
                self._suspects.stands_still(each)
        self._tried = []

    def _note_deaths(self, died: Sequence[Mapping[str, Any]]) -> None:
        for death in died:
            lost = [Range(*each) for each in death["ranges"]]
            if len(lost) == 1 and lost[0].size == 1 and not death["begun"]:
                # Perhaps it died before: then it was not the record. Alone, it is known.
                self._suspects.suspect(lost)
            elif self._suspects.blame(lost, proof=PROOF):
                self._proven[lost[0].place] = lost[0].start

    def _is_proven(self, each: Range) -> bool:
        return self._proven.get(each.place) == each.start


def _is_at(position: Position | None, offset: int) -> bool:
    return position is None or position.offset == offset
