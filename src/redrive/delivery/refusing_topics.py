"""RefusingTopics: topics that refuse what is to be written, and when it is worth another try.

A topic that takes nothing at all is shut. It is asked about now and then, without writing; any
other is simply tried again later. May be used from many threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.clock import steady
from redrive.errors import PublishError, RedriveError
from redrive.kafka.errors import first_not_allowed, refusal
from redrive.tuning import REFUSED_LONGEST, REFUSED_WAIT

if TYPE_CHECKING:
    from redrive.ports import Clock
    from redrive.record import Write

log: Final = logging.getLogger("redrive.delivery")


_ASKABLE: Final = ("topic", "outage")

Ask = Callable[[Collection[str]], Mapping[str, PublishError]]
"""Which of some topics take nothing at all now, and why; RedriveError where nobody answers."""


def raise_unless_refused(error: PublishError) -> None:
    """Raise what does not pass by waiting, or leaving writes out: a permission that is missing.

    And what names no writes: nobody knows what to leave out.
    """
    not_allowed = first_not_allowed(error.reasons)
    if not_allowed is not None or not error.refused:
        raise not_allowed or error


class Waiting(NamedTuple):
    """The records of one partition that wait for topics."""

    records: int = 0
    with_those_behind: int = 0
    """The same, with those that wait for them."""
    reasons: Sequence[PublishError] = ()

    def plus(self, other: Waiting) -> Waiting:
        """Both together."""
        return Waiting(
            self.records + other.records,
            self.with_those_behind + other.with_those_behind,
            [*self.reasons, *other.reasons],
        )


@dataclass
class _Topic:
    reason: PublishError
    until: int
    wait: int = REFUSED_WAIT
    may_be_tried: bool = False


class RefusingTopics:
    """The topics of one process that have refused something, each until it takes writes again."""

    def __init__(
        self,
        ask: Ask,
        clock: Clock,
        *,
        longest_blind: int = REFUSED_LONGEST,
        known: set[str] | None = None,
        quiet: bool = False,
    ) -> None:
        """`longest_blind` is the longest wait where asking does not tell whether to try again.

        `known` are those that were found to take writes, also by others of this process. With
        `quiet` somebody else says what is wrong.
        """
        self._known = set() if known is None else known
        self._met = set(self._known)
        self._longest_blind = longest_blind
        self._quiet = quiet
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
    def to_be_tried(self) -> set[str]:
        """Those that were found to take writes again, which has not been tried yet."""
        with self._lock:
            return {name for name, one in self._topics.items() if one.may_be_tried}

    @property
    def reason(self) -> str:
        """Why one of them refuses, in one sentence; empty while none does."""
        with self._lock:
            return next((str(one.reason) for one in self._topics.values()), "")

    def reasons(self, topics: Iterable[str]) -> list[PublishError]:
        """Why those of these refuse that do."""
        with self._lock:
            return [self._topics[name].reason for name in topics if name in self._topics]

    @property
    def next_due(self) -> int | None:
        """When the next of them is worth a look, in steady time."""
        with self._lock:
            waiting = (one.until for one in self._topics.values() if not one.may_be_tried)
            return min(waiting, default=None)

    def note(self, reason: PublishError, topics: Iterable[str] = ()) -> None:
        """Note a refusal, of one of these where it names none; it is logged when new."""
        with self._lock:
            for topic in [reason.topic] if reason.topic else topics:
                self._note(topic, reason)

    def meet(self, topics: Collection[str]) -> None:
        """Ask about those of these that nobody was asked about: before the first write to them.

        librdkafka would look for a missing one for seconds, with more work done in vain meanwhile.
        """
        news = {*topics} - self._met
        if not news:
            return
        self._met |= news
        try:
            found = self._ask(news)
        except RedriveError:
            return  # nobody answers: then writes are refused one by one
        self._known |= news - found.keys()
        for reason in found.values():
            if reason.kind == "topic":
                self.note(reason)

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
        """Until which steady time a write to all of these is not worth a try; None: it is, now."""
        waits = [wait for name in topics if (wait := self._until(name)) is not None]
        return max(waits, default=None)

    def taken(self, topics: Iterable[str]) -> None:
        """Note that writes to these were taken."""
        if not self._topics:
            return
        with self._lock:
            for name in topics:
                if self._topics.pop(name, None) is not None:
                    level = logging.DEBUG if self._quiet else logging.WARNING
                    log.log(level, "writes to %s are accepted again", name)

    def keep(self, topics: Collection[str]) -> None:
        """Forget those that nobody waits for any more: all but these, and those being tried."""
        with self._lock:
            for name, topic in list(self._topics.items()):
                if name not in topics and not topic.may_be_tried:
                    del self._topics[name]

    def clear(self) -> None:
        """Forget all of them: each is asked about and tried again."""
        with self._lock:
            self._met -= self._topics.keys()
            self._topics.clear()

    def _note(self, topic: str, reason: PublishError) -> None:
        now = steady(self._clock)
        before = self._topics.get(topic)
        if before is None or before.reason.kind != reason.kind:
            level = logging.DEBUG if self._quiet else logging.ERROR
            log.log(level, "%s; the records that need it stay where they are", reason)
        if before is None:
            self._topics[topic] = _Topic(reason, now + REFUSED_WAIT)
            return
        before.reason = reason
        if before.may_be_tried or now >= before.until:
            blind = reason.kind not in _ASKABLE
            longest = self._longest_blind if blind else REFUSED_LONGEST
            before.wait = min(2 * before.wait, longest)
            before.until = now + before.wait
            before.may_be_tried = False

    def _until(self, name: str) -> int | None:
        with self._lock:
            topic = self._topics.get(name)
            if topic is None or topic.may_be_tried:
                return None
            if steady(self._clock) < topic.until:
                return topic.until
            due, topic.until = topic.until, steady(self._clock) + topic.wait  # one of them asks
        # Not within the lock: a broker may be silent for long, and event loops note it here.
        try:
            refusing = self._ask([name]).get(name) if name else None
        except RedriveError:
            refusing = topic.reason  # nobody answers: neither would anybody take it
        with self._lock:
            if refusing is None:
                topic.may_be_tried = True
                return None
            topic.until = due
            self._note(name, refusing)
            return topic.until
