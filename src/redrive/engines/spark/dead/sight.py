"""Sight: what tasks may tell of letters: without what the app masks, as the driver would.

What masked fields hold is known by the app's own decoders, so that tasks import the app; but only
if it masks fields and has decoders. Else the names of the fields are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive import sources
from redrive.config import Settings
from redrive.dead.letter import Letter
from redrive.dead.showing import See, Seen
from redrive.engines.spark.runtime import load
from redrive.engines.spark.spark_session import folder_of
from redrive.engines.spark.spec import Spec
from redrive.loading import target_of

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letters import DeadLetters


@dataclass(frozen=True)
class Shipped:
    """An app for Python workers of Spark, which import it."""

    target: str
    """As module:name."""
    folder: str
    """Where its module was imported from, in case executors can see this folder too."""
    sources: dict[str, str]

    @classmethod
    def of(cls, target: str) -> Shipped:
        """The app of that name."""
        return cls(target, folder_of(target), sources.remember(target.partition(":")[0]))

    def load(self, settings: Settings, run: str = "") -> App:
        """The app; runs in a Python worker."""
        return load(
            Spec(
                target=self.target,
                folder=self.folder,
                settings=settings,
                sources=self.sources,
                run=run,
                scratch="",
                slots=1,
            )
        )


@dataclass(frozen=True)
class Sight:
    """What may be seen of the letters of one topic."""

    masked: tuple[str, ...] = ()
    shipped: Shipped | None = None
    """The app, if its decoders are needed."""

    @classmethod
    def of(cls, letters: DeadLetters) -> Sight:
        """What whoever reads these letters may see."""
        app = letters.app
        if app is None or letters.masked is not None:
            return cls(tuple(letters.masked or ()))
        decodes = any(each.decode is not None for each in app.handlers.values())
        needed = bool(app.masked) and decodes
        return cls(tuple(app.masked), Shipped.of(target_of(app)) if needed else None)

    def see(self, settings: Settings) -> See:
        """How to look at a letter; runs in a Python worker."""
        app = None if self.shipped is None else self.shipped.load(settings)

        def seen(letter: Letter) -> Seen:
            return Seen(letter, app, self.masked)

        return seen
