"""Board: all that the console knows of one app, shared by everybody who looks at it."""

from __future__ import annotations

import logging
from threading import Event
from time import time
from typing import Final

from redrive.clock import WallClock
from redrive.config import Settings
from redrive.console.concerns import Concern, concerns
from redrive.console.endpoints import Endpoints
from redrive.console.fates import Fates
from redrive.console.jobs import Jobs
from redrive.console.letters_index import LettersIndex
from redrive.console.parked_counts import ParkedCounts
from redrive.console.plans import Plans
from redrive.console.prometheus import past
from redrive.console.ruling import Ruling
from redrive.console.sampling import Sampler, told
from redrive.console.trends import Point
from redrive.console.watched import Watched
from redrive.threads import start_thread
from redrive.tuning import CONSOLE_LOOK_EVERY, CONSOLE_WARN_AFTER

log: Final = logging.getLogger("redrive.console")


class Board:
    """One app: its flow, its letters, its jobs."""

    def __init__(
        self,
        watched: Watched,
        endpoints: Endpoints,
        prometheus: str | None = None,
        warn_after: int = CONSOLE_WARN_AFTER,
    ) -> None:
        """`warn_after`: how long letters may wait for a decision, in milliseconds."""
        self._warn_after = warn_after
        self.watches = endpoints.any
        self.watched = watched
        self.index = LettersIndex(watched.letters)
        more = tuple if watched.has_code else self.index.origins
        self.sampler = Sampler(
            watched,
            endpoints,
            more_sources=more,
            past=lambda: self._past(prometheus),
            unsettled=self.index.first_unsettled,
        )
        self.jobs = Jobs()
        self.plans = Plans()
        self.fates = Fates(watched.watch, WallClock())
        self.parked = ParkedCounts(lambda most: watched.steering("console").parked(most))
        self.ruling = Ruling()
        self.index_trouble = ""
        self._ended = Event()

    @property
    def name(self) -> str:
        """The app's name."""
        return self.watched.name

    @property
    def settings(self) -> Settings:
        """Where Kafka is."""
        return self.watched.settings

    @property
    def version(self) -> tuple[int, ...]:
        """Changes whenever something on the board does."""
        own = (self.sampler, self.index, self.jobs, self.parked)
        return tuple(each.version for each in own)

    def start(self) -> None:
        """Begin to look."""
        self.sampler.start()
        start_thread(self._count, name=f"redrive-letters-{self.name}", on_death=_report)

    def close(self, seconds: float = 10.0) -> None:
        """Look no more, and pause what runs here."""
        self._ended.set()
        self.sampler.stop()
        self.jobs.close(seconds)
        self.watched.close()

    def concerns(self) -> list[Concern]:
        """What a person would want to be warned of."""
        now = int(time() * 1000)
        sampler = self.sampler
        found = concerns(
            self.name,
            sampler.flow,
            counted=self.index.counted(now),
            seen=sampler.seen,
            kept=sampler.kept,
            now=now,
            warn_after=self._warn_after,
        )
        if self.index_trouble:
            found.insert(0, Concern(grave=True, said=self.index_trouble))
        return found

    def _past(self, prometheus: str | None) -> list[Point]:
        return (
            []
            if prometheus is None
            else past(prometheus, self.name, int(time() * 1000), self.sampler.flow.dead())
        )

    def _count(self) -> None:
        while not self._ended.is_set():
            try:
                self.index.refresh(self._ended.is_set)
                self.index.trim(int(time() * 1000))
                self.index_trouble = ""
            except Exception as error:  # noqa: BLE001 -- the page says so, and the next may work
                self.index_trouble = f"letters are not counted: {told(error)}"
            self._ended.wait(CONSOLE_LOOK_EVERY)


def _report(error: BaseException) -> None:
    log.error("the console no longer counts letters: %r", error)
