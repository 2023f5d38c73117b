"""Chunks: rows that follow each other, and what is to be written for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from redrive.messages import Messages
from redrive.processing.outcomes.report import Outcome


@dataclass
class Chunk:
    """Rows that follow each other, with all that is to be written for them."""

    end: int
    """The offset after the last of them, gaps included."""
    writes: Messages = field(default_factory=Messages)
    owners: list[int] = field(default_factory=list)
    """For each write the offset of its row."""
    done: list[Sequence[int]] = field(default_factory=list)
    """The offsets of rows that are done, with what they send: each in ascending order."""
    outcomes: list[Outcome] = field(default_factory=list)
    """What became of the others."""
    weight: int = 0
    """Bytes that its rows have in memory, about."""

    @property
    def counts(self) -> Counter[str]:
        """How many rows ended in which way."""
        found: Counter[str] = Counter(each.kind for each in self.outcomes)
        found["done"] = sum(map(len, self.done))
        return +found

    def add(self, outcome: Outcome) -> None:
        """Add what became of a row that is not done."""
        self.writes.extend(outcome.writes)
        self.owners += repeat(outcome.offset, len(outcome.writes))
        self.outcomes.append(outcome)

    def extend(self, other: Chunk) -> None:
        """Add the chunk that follows."""
        self.end = other.end
        self.writes.extend(other.writes)
        self.owners += other.owners
        self.done += other.done
        self.outcomes += other.outcomes
        self.weight += other.weight

    def without(self, rows: Collection[int], end: int) -> Chunk:
        """The same up to an offset, without some rows."""
        kept = [
            (write, owner)
            for write, owner in zip(self.writes, self.owners, strict=True)
            if owner < end and owner not in rows
        ]
        done = [each[: bisect_left(each, end)] for each in self.done]
        return Chunk(
            end,
            Messages(write for write, _ in kept),
            [owner for _, owner in kept],
            [[offset for offset in each if offset not in rows] for each in done],
            [each for each in self.outcomes if each.offset < end],
            self.weight,
        )
