"""RefusingTopics: topics that refuse what is to be written, and when it is worth another try.

A topic that takes nothing at all is shut. It is asked about now and then, without writing; any
other is simply tried again later. May be used from many threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from redrive.errors import PublishError, RedriveError
from redrive.kafka.errors import refusal

if TYPE_CHECKING:
    from redrive.ports import Clock
    from redrive.record import Write

log: Final = logging.getLogger("redrive.delivery")

REFUSED_WAIT: Final = 1000
REFUSED_LONGEST: Final = 30_000
"""Milliseconds until it is looked at again: doubled each time, up to the second."""

Ask = Callable[[Collection[str]], Mapping[str, PublishError]]
"""Which of some topics take nothing at all now, and why; RedriveError where nobody answers."""


@dataclass
class _Topic:
    reason: PublishError
    until: int
    wait: int = REFUSED_WAIT
    may_be_tried: bool = False


class RefusingTopics:
    """The topics of one process that have refused something, each until it takes writes again."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._lock = Lock()

    @property
    def shut(self) -> set[str]:
        """Those that take nothing."""
        with self._lock:
            return {name for name, one in self._topics.items() if one.reason.kind == "topic"}

    @property
    def reason(self) -> str:
        """Why one of them refuses, in one sentence; empty while none does."""
        with self._lock:
            return next((str(one.reason) for one in self._topics.values()), "")

    @property
    def next_due(self) -> int | None:
        """When the next of them is worth a look."""
        with self._lock:
            waiting = (one.until for one in self._topics.values() if not one.may_be_tried)
            return min(waiting, default=None)

    def note(self, reason: PublishError, topics: Iterable[str] = ()) -> None:
        """Take note of a refusal, of one of these where it names none; it is told when news."""
        with self._lock:
            for topic in [reason.topic] if reason.topic else topics:
                self._note(topic, reason)

    def are_shut(self, topics: Collection[str]) -> set[str]:
        """Which of these take nothing, asked before the first write to them.

        librdkafka would look for a missing one for seconds, with more work done in vain meanwhile.
        """
        try:
            found = self._ask(topics)
        except RedriveError:
            return {*topics}  # nobody answers: then writes are refused one by one
        for reason in found.values():
            if reason.kind == "topic":
                self.note(reason)
        return {*found}

    def refusal(self, writes: Sequence[Write]) -> PublishError | None:
        """What to raise instead of writing these, where topics of some are shut."""
        if not self._topics:
            return None
        with self._lock:
            shut = {
                name: topic.reason
                for name, topic in self._topics.items()
                if topic.reason.kind == "topic" and not topic.may_be_tried
            }
        refused = [write for write in writes if write.topic in shut]
        reasons = [shut[write.topic] for write in refused]
        return refusal(refused, reasons, len(writes)) if refused else None

    def until(self, topics: Iterable[str]) -> int | None:
        """Until when a write to all of these is not worth a try; None: it is, now."""
        with self._lock:
            waits = [wait for name in topics if (wait := self._until(name)) is not None]
        return max(waits, default=None)

    def taken(self, topics: Iterable[str]) -> None:
        """Take note that writes to these were taken."""
        if not self._topics:
            return
        with self._lock:
            for name in topics:
                if self._topics.pop(name, None) is not None:
                    log.warning("writes to %s are taken again", name)

    def keep(self, topics: Collection[str]) -> None:
        """Forget those that nobody waits for any more: all but these, and those being tried."""
        with self._lock:
            for name, topic in list(self._topics.items()):
                if name not in topics and not topic.may_be_tried:
                    del self._topics[name]

    def _note(self, topic: str, reason: PublishError) -> None:
        now = self._clock.now()
        before = self._topics.get(topic)
        if before is None or before.reason.kind != reason.kind:
            log.error("%s; the records that need it stay where they are", reason)
        if before is None:
            self._topics[topic] = _Topic(reason, now + REFUSED_WAIT)
            return
        before.reason = reason
        if before.may_be_tried or now >= before.until:
            before.wait = min(2 * before.wait, REFUSED_LONGEST)
            before.until = now + before.wait
            before.may_be_tried = False

    def _until(self, name: str) -> int | None:
        topic = self._topics.get(name)
        if topic is None or topic.may_be_tried:
            return None
        if self._clock.now() < topic.until:
            return topic.until
        try:
            refusing = self._ask([name]).get(name) if name else None
        except RedriveError:
            refusing = topic.reason  # nobody answers: neither would anybody take it
        if refusing is None:
            topic.may_be_tried = True
            return None
        self._note(name, refusing)
        return topic.until
