"""Watched: an app as the console sees it: by Kafka, with the app's code or without."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from redrive.app import App
from redrive.clock import WallClock
from redrive.config import Settings
from redrive.console.bounded_code import BoundedCode
from redrive.dead import DeadLetters, Operation, Operator, open_operator
from redrive.dead.steering import Steering
from redrive.dead.watching import Watch
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher


@dataclass(frozen=True)
class Watched:
    """One app, and the clients that it is watched with; they are safe to share among threads."""

    app: App
    settings: Settings
    has_code: bool = True
    """Whether its handlers are known; else only its topics are, by the app's name."""

    @property
    def name(self) -> str:
        """The app's name."""
        return self.app.name

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that it has handlers for, if that is known."""
        return tuple(self.app.handlers) if self.has_code else ()

    @cached_property
    def admin(self) -> Admin:
        """Asks the cluster about topics and groups."""
        return Admin(self.settings)

    @cached_property
    def log(self) -> KafkaLog:
        """Reads its topics."""
        return KafkaLog(self.settings, self.name, admin=self.admin)

    @cached_property
    def progress(self) -> KafkaProgress:
        """Reads its committed offsets."""
        return KafkaProgress(self.settings, self.name, admin=self.admin, stable=False)

    @cached_property
    def publisher(self) -> KafkaPublisher:
        """Writes rules about parked records."""
        return KafkaPublisher(self.settings)

    @cached_property
    def letters(self) -> DeadLetters:
        """Its dead letters."""
        if self.has_code:
            return DeadLetters(self.log, app=self.app, calls=BoundedCode())
        return DeadLetters(self.log, topic=self.app.dead_topic, masked=self.app.masked)

    def operator(self, by: str) -> Operator:
        """Who does something about its letters, in that name."""
        return open_operator(self.letters, self.settings, by)

    def watch(self, operation: Operation) -> Watch | None:
        """Where one sees what became of the copies of a replay; None: without code one cannot."""
        return Watch(self.letters, operation, self.progress) if self.has_code else None

    def steering(self, by: str) -> Steering:
        """Who says something about its parked records, in that name."""
        return Steering(
            self.app,
            log=self.log,
            progress=self.progress,
            publisher=self.publisher,
            clock=WallClock(),
            by=by,
        )

    def close(self) -> None:
        """Close the clients."""
        self.log.close()
        self.progress.close()
        if "publisher" in self.__dict__:
            self.publisher.close()
