"""Going back: an app's progress is put back, while nobody works for it.

The order is the guarantee: whoever could still commit is fenced off, it is seen that nobody has
moved the progress since it was looked at, ids are forgotten, and then all offsets are committed at
once. A process that is killed before that has changed no progress.

A task on Spark that began before that, and whose handlers take long, finds the mark of the rewind
before it commits, and does not (`engines/spark/marks.py`). One that had looked for it just before
is fenced off, where it has transactions; or else its commit arrives while it is waited for, so that
it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from redrive.dead.standing import lots
from redrive.engines.spark.marks import REWIND, labelled, new_run, with_firsts
from redrive.errors import NotReadyError
from redrive.processing.progress.notes import RUN, noted, with_note
from redrive.tuning import REWIND_STOOD, TAKE_OVER_LOOK_EVERY, TAKE_OVER_STOOD

if TYPE_CHECKING:
    from redrive.ports import Clock, Position, Progress
    from redrive.record import TopicPartition
    from redrive.rewind.old_records import OldRecords
    from redrive.rewind.targets import Span


@dataclass(frozen=True)
class SoleAccess:
    """What is needed in order to have an app's progress for oneself."""

    progress: Progress
    """Waits for what a transaction may still commit; brokers refuse it while there are members."""
    seen: Progress
    """The same without waiting: a transaction may be open until somebody is fenced off."""
    wait_for_workers: Callable[[], None]
    """Returns when the app's group has no members; an error says who is in it."""
    fence: Callable[[Collection[TopicPartition]], object]
    """Fences off whoever may have a transaction of these partitions, where the app has them."""
    clock: Clock
    wait: Callable[[float], None]


class GoingBack:
    """One app's progress, on its way back."""

    def __init__(
        self, app: str, spans: Sequence[Span], records: OldRecords, access: SoleAccess
    ) -> None:
        self._app = app
        self._spans = spans
        self._records = records
        self._access = access

    def check(self) -> None:
        """See that no run on Spark commits: NotReadyError says which one does."""
        if self._on_spark:
            self._check_unmoved(self._access.seen, TAKE_OVER_STOOD)

    def fence_off(self) -> None:
        """From here on nobody else commits, or it is seen that somebody did."""
        self._access.fence([span.place for span in self._spans])
        self._access.wait_for_workers()
        self._check_unmoved(self._access.progress)

    def is_back(self) -> bool:
        """Whether somebody has done it before, and was killed before it was written down."""
        found = self._access.progress.committed([span.place for span in self._spans])
        without = {place: with_note(position, RUN, "") for place, position in found.items()}
        return without == self._rewound("")

    def forget(self) -> Iterator[int]:
        """Have the inbox forget what the records in range were done under, step by step.

        Yields how many each step has forgotten.
        """
        for span in self._spans:
            for some in lots(self._records.of(span), lambda old: old.record):
                done = [old.stands.own for old in some if old.stands.own is not None]
                yield self._records.standings.forget(done)

    def commit(self) -> None:
        """Put the progress back. An idle run on Spark finds the mark of it, and stops."""
        self._check_unmoved(self._access.progress)
        run = ""
        if self._on_spark:
            run = new_run(self._access.clock.now(), self._positions, REWIND)
        positions = self._rewound(run)
        self._access.progress.commit(positions)
        if self._on_spark:
            # Once more: a task may have begun between the fence and the mark.
            self._access.fence([*positions])
            self._check_stood(positions)

    def _rewound(self, run: str) -> dict[TopicPartition, Position]:
        ids = self._records.standings.scope.topic_ids
        return {
            span.place: labelled(span.rewound, topic_id=ids[span.place.topic], run=run)
            for span in self._spans
        }

    @property
    def _on_spark(self) -> bool:
        """Whether a run on Spark has committed last: it is no member of the group."""
        return any(noted(each, RUN) for each in self._positions)

    @cached_property
    def _positions(self) -> list[Position]:
        """Where runs leave their mark: also the first partitions of topics.

        One that has just begun may have marked no others yet.
        """
        firsts = with_firsts(span.place for span in self._spans)
        found = self._access.seen.committed(firsts)
        return [*found.values(), *(span.position for span in self._spans)]

    def _check_unmoved(self, progress: Progress, looks: int = 0) -> None:
        expected = {span.place: span.position for span in self._spans}
        if (place := self._moved(expected, progress, looks)) is not None:
            raise NotReadyError(
                f"the app {self._app} is running{self._where(place)}: {place} has moved on since"
                " it was looked at; stop it first, and begin again"
            )

    def _check_stood(self, expected: dict[TopicPartition, Position]) -> None:
        if (place := self._moved(expected, self._access.progress, REWIND_STOOD)) is not None:
            raise NotReadyError(
                f"the app {self._app} was running{self._where(place)} after all, and has committed"
                f" {place} since: stop it, and rewind it again"
            )

    def _moved(
        self, expected: dict[TopicPartition, Position], progress: Progress, looks: int
    ) -> TopicPartition | None:
        """A partition whose progress is not as expected, at one of several looks."""
        for look in range(looks + 1):
            if look:
                self._access.wait(TAKE_OVER_LOOK_EVERY)
            found = progress.committed(list(expected))
            for place, position in expected.items():
                if found.get(place) != position:
                    return place
        return None

    def _where(self, place: TopicPartition) -> str:
        found = self._access.seen.committed([place]).get(place)
        run = "" if found is None else noted(found, RUN)
        return f" on Spark (run {run})" if run else ""
