"""RefusedRows: the rows of one range whose writes are refused."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import TYPE_CHECKING

from redrive.delivery.items import reasons_of
from redrive.delivery.refusing_topics import RefusingTopics, Waiting, raise_unless_refused
from redrive.errors import PublishError

if TYPE_CHECKING:
    from redrive.engines.spark.frames.chunks import Chunk
    from redrive.processing.outcomes.report import Outcome

Bury = Callable[[int, PublishError], "Outcome"]
"""What becomes of the row at an offset whose message its topic does not take."""


class RefusedRows:
    """Which of them are buried for it, and which have the range end before them.

    Where it ends it waits: the planner leaves it out until the topics take writes.
    """

    def __init__(self, topics: RefusingTopics, bury: Bury) -> None:
        self.topics = topics
        self._bury = bury
        self.waiting = Waiting()
        """The rows that wait for topics."""
        self.end: float = inf
        """The first of them: nothing from there on is committed."""

    def meet(self, topics: Collection[str]) -> None:
        """Ask about topics before the first write to them."""
        self.topics.meet(topics)

    def writable(self, chunk: Chunk) -> Chunk:
        """What of a chunk can be written: all before the first row that has to wait."""
        error = self.topics.refusal(chunk.writes)
        return chunk if error is None else self.without(chunk, error)

    def without(self, chunk: Chunk, error: PublishError) -> Chunk:
        """What of a chunk is left without the writes that were refused.

        At its end are the dead letters of rows that are buried for it.
        """
        raise_unless_refused(error)
        reasons = reasons_of(error)
        hops = {id(write) for each in chunk.outcomes for write in each.writes}
        wrong: dict[int, PublishError] = {}
        held: dict[int, list[PublishError]] = {}
        for write, owner in zip(chunk.writes, chunk.owners, strict=True):
            why = reasons.get(id(write))
            if why is None:
                continue
            if why.kind == "message" and id(write) not in hops:
                wrong.setdefault(owner, why)
            else:
                held.setdefault(owner, []).append(why)
        end = min(held, default=chunk.end)
        if held:
            self.end = end
            self.waiting = Waiting(
                len(held), len(held), [one for each in held.values() for one in each]
            )
        wrong = {owner: why for owner, why in wrong.items() if owner < end}
        rest = chunk.without(wrong, end)
        for owner, why in wrong.items():
            rest.add(self._bury(owner, why))
        return rest
