"""RunGuards: the guards of a run, as its driver sees them: notes what tasks tell, and says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from redrive.engines.spark.outages.shared_book import SharedBook
from redrive.engines.spark.outages.told import Told
from redrive.engines.words import LaneName
from redrive.processing.outcomes.guard_log import GuardLog, GuardSeen

if TYPE_CHECKING:
    from redrive.ports import Clock


class RunGuards:
    """The guards of a run; of an app without any, nothing."""

    def __init__(self, book: SharedBook | None, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._log = GuardLog()
        self._telling = Lock()

    def note(self, lane: LaneName, reports: Iterable[Mapping[str, Any]]) -> None:
        """Note what the tasks of a batch have told."""
        told = [Told.of(each) for report in reports for each in report.get("guards", ())]
        if self._book is None or not any(each.is_news for each in told):
            return
        with self._book.opened() as book:
            book.note(lane, told, self._book.steady())
        self.tell_news()

    def seen(self) -> list[GuardSeen]:
        """All of them, as they are."""
        if self._book is None:
            return []
        moved = self._clock.now() - self._book.steady()
        pages = self._look(self._book)
        return [self._log.seen(topic, page.breaker, moved) for topic, page in pages.items()]

    def tell_news(self) -> None:
        """Log what has changed."""
        if self._book is None:
            return
        with self._telling:  # both lanes and whoever waits for the run want to say it
            now = self._book.steady()
            for topic, page in self._look(self._book).items():
                self._log.note(topic, page.breaker, now)
                self._log.say_loud(topic, page.breaker, now)

    def _look(self, book: SharedBook) -> Mapping[str, Any]:
        pages = book.seen().pages
        self._log.said = {topic: page.said for topic, page in pages.items()}
        return pages
