"""Guards: whether failures are their records' own, or an outage, for each guarded handler.

Asked between "the handler has failed" and "the policy decides". May be used from many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from threading import Lock
from typing import TYPE_CHECKING

from redrive.breaker import Breaker
from redrive.envelope import text_of
from redrive.fingerprint import Fingerprint
from redrive.logs import one_line
from redrive.processing.outcomes.guard_log import GuardLog, GuardSeen
from redrive.processing.work import Work

if TYPE_CHECKING:
    from redrive.handler import Handler
    from redrive.record import Record, TopicPartition

FingerprintOf = Callable[["Record", BaseException], Fingerprint]


class Guards:
    """The breakers of one process, and what is held by them."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        concurrency: int,
        fingerprint: FingerprintOf,
        steady: Callable[[int], int],
    ) -> None:
        self.breakers: dict[str, Breaker[Work]] = {
            each.topic: Breaker(each.guard, concurrency)
            for each in handlers
            if each.guard is not None
        }
        """By source topic."""
        self._fingerprint = fingerprint
        self.steady = steady
        """A time of the clock in time that nobody sets."""
        self._failures: dict[Work, BaseException] = {}
        """What records have failed with that are held because there may be an outage."""
        self._own: dict[Work, BaseException] = {}
        """What others have failed with: there was none, and it is their own."""
        self.log = GuardLog()
        self._wanted: set[str] = set()
        """Topics of handlers of which one more record could be let out, but none waits."""
        self._lock = Lock()

    # What calls come to

    def failed(self, work: Work, error: BaseException, now: int) -> int | None:
        """Until when a record that failed is held, in steady time; None: its policy decides."""
        breaker = self.breakers.get(work.handler.topic)
        if breaker is None:
            return None
        steady = self.steady(now)
        with self._lock:
            if self._own.pop(work, None) is not None:
                return None
            if not breaker.guard.sees_outage(error):
                breaker.let_out_answered(work, steady)
                self.log.note(work.handler.topic, breaker, steady)
                return None
            if not self._waits(breaker, work, error, steady):
                return None
            self.log.note(work.handler.topic, breaker, steady)
            if breaker.is_shut:
                return steady  # its lane is shut: whoever lets it out knows when
            self._failures[work] = error
            return steady + 2 * breaker.window  # it is looked at before that

    def _waits(self, breaker: Breaker[Work], work: Work, error: BaseException, steady: int) -> bool:
        found = self._fingerprint(work.record, error)
        if breaker.state != "open":
            said = one_line(text_of(error))[:200]
            what = f"{found.error}: {said}" if said else found.error
            self.log.said[work.handler.topic] = what
        outage = breaker.guard.said(error)
        if outage is None:
            return breaker.failed(work, key_of(work), found.id, steady)
        return breaker.outage(work, key_of(work), found.id, steady, outage.retry_after)

    def passed(self, work: Work, now: int) -> None:
        """Note that the call of a record has succeeded."""
        breaker = self.breakers.get(work.handler.topic)
        if breaker is not None and breaker.state != "closed":
            steady = self.steady(now)
            with self._lock:
                if self._failures.pop(work, None) is not None:
                    breaker.forget(work)  # it was called again, as its unit of work was undone
                self._own.pop(work, None)
                breaker.let_out_passed(work, steady)
                self.log.note(work.handler.topic, breaker, steady)

    def have_passed(self, topic: str, count: int, works: Iterable[Work], now: int) -> None:
        """Note that calls have succeeded: so many, and of some it is known whose they were."""
        breaker = self.breakers.get(topic)
        if breaker is None or breaker.state == "closed":
            return
        if breaker.state == "suspect":
            with self._lock:
                breaker.passed(count, self.steady(now))
            return
        for work in works:
            self.passed(work, now)

    def is_shut(self, topic: str) -> bool:
        """Whether there is an outage for the handler of that topic."""
        breaker = self.breakers.get(topic)
        return breaker is not None and breaker.is_shut

    @property
    def all_closed(self) -> bool:
        """Whether nothing is to be done about any of them: most of the time."""
        return all(each.state == "closed" for each in self.breakers.values())

    def ended(self, works: Iterable[Work], now: int) -> None:
        """Note that nothing runs any more of these, whatever came of them."""
        for work in works:
            breaker = self.breakers.get(work.handler.topic)
            if breaker is not None and breaker.is_shut:
                with self._lock:
                    breaker.let_out_ended(work, self.steady(now))

    # What is held

    def holds(self, work: Work) -> bool:
        """Whether a record waits because there may be, or is, an outage."""
        breaker = self.breakers.get(work.handler.topic)
        return breaker is not None and (breaker.is_shut or work in self._failures)

    def held_for(self, work: Work, now: int, since: int = 0) -> int:
        """How long a record has waited since then for the end of the latest outage."""
        breaker = self.breakers.get(work.handler.topic)
        if breaker is None or (not breaker.is_shut and breaker.ended is None):
            return 0
        end = self.steady(now) if breaker.ended is None else breaker.ended
        return max(0, end - max(self.steady(self.waits_since(work, since)), breaker.opened))

    def waits_since(self, work: Work, since: int) -> int:
        """Since when a record has been here, and due."""
        return max(work.received, work.due or 0, since)

    def own_failure(self, work: Work) -> BaseException | None:
        """What a record has failed with that was held, and is to be judged; None: call it."""
        return self._own.get(work)

    def look(self, topic: str, now: int, *, stalled: bool, lanes: int | None = None) -> list[Work]:
        """Decide about those that are held; returns who need not be held any more."""
        breaker, steady = self.breakers[topic], self.steady(now)
        with self._lock:
            looked = breaker.look(steady, stalled=stalled, lanes=lanes)
            for work in looked.own:
                if (error := self._failures.pop(work, None)) is not None:
                    self._own[work] = error
            for work in looked.again:
                self._failures.pop(work, None)
            self.log.note(topic, breaker, steady)
        return [*looked.own, *looked.again]

    def take_held(self, topic: str) -> list[Work]:
        """Those that are held no more on their own: there is an outage, and all wait."""
        with self._lock:
            held = [work for work in self._failures if work.handler.topic == topic]
            for work in held:
                del self._failures[work]
            for work in [each for each in self._own if each.handler.topic == topic]:
                del self._own[work]  # not judged yet: it was an outage after all
        return held

    def may_let_out(self, topic: str, place: TopicPartition) -> bool:  # noqa: ARG002 -- for others to say
        """Whether one of a partition's records may be let out, if one may."""
        return True

    def tried(self, topic: str, place: TopicPartition) -> Collection[int]:  # noqa: ARG002 -- for others to say
        """The offsets of those that are let out last, if others wait, too."""
        return ()

    def let_out(self, topic: str, work: Work) -> None:
        """Note that a record may begin, although there is an outage."""
        with self._lock:
            self.breakers[topic].begin(work)

    def called(self, topic: str, works: Iterable[Work], now: int) -> None:
        """Note that these are called now, of which some may have been let out."""
        breaker = self.breakers.get(topic)
        if breaker is not None and breaker.is_shut:
            with self._lock:
                for work in works:
                    breaker.called(work, self.steady(now))

    def wants(self, topic: str, *, more: bool) -> None:
        """Note whether a record could be let out, but none waits."""
        (self._wanted.add if more else self._wanted.discard)(topic)

    def keeps_here(self, topic: str) -> bool:
        """Whether a record had better not be written back to its origin now.

        One at a time has to be, if it is needed there to find out whether the outage is over.
        """
        if not self.is_shut(topic):
            return False
        wanted = topic in self._wanted
        self._wanted.discard(topic)
        return not wanted

    def nothing_waits(self, topic: str, now: int) -> None:
        """Note that no record of a handler waits for the end of its outage."""
        breaker, steady = self.breakers[topic], self.steady(now)
        with self._lock:
            breaker.nothing_waits(steady)
            self.log.note(topic, breaker, steady)

    def took(self, topic: str, seconds: float) -> None:
        """Note how long a call of a handler took that has failed."""
        breaker = self.breakers.get(topic)
        if breaker is not None and not breaker.is_shut:
            with self._lock:
                breaker.took(1000 * seconds)

    def forget_closed(self, topic: str, now: int) -> None:
        """Forget records whose partition was taken away: they are somebody else's."""
        breaker = self.breakers[topic]
        with self._lock:
            for work in breaker.begun():
                if work.assigned.closed:
                    breaker.let_out_ended(work, self.steady(now))
            _drop_closed(self._failures, breaker)
            _drop_closed(self._own, breaker)

    # What is said

    def seen(self, now: int) -> list[GuardSeen]:
        """All of them, as they are."""
        moved = now - self.steady(now)
        with self._lock:
            return [self.log.seen(topic, each, moved) for topic, each in self.breakers.items()]

    def say_loud(self, topic: str, now: int) -> None:
        """Log as an error that an outage lasts longer than the app wants it to."""
        self.log.say_loud(topic, self.breakers[topic], self.steady(now))


def _drop_closed(works: dict[Work, BaseException], breaker: Breaker[Work]) -> None:
    for work in [each for each in works if each.assigned.closed]:
        del works[work]
        breaker.forget(work)


def key_of(work: Work) -> object:
    """What failures of one key have in common; a record without one is its own."""
    record = work.record
    return record.key if record.key is not None else (record.partition, record.offset)


def any_guarded(handlers: Collection[Handler]) -> bool:
    """Whether any of them has a guard."""
    return any(each.guard is not None for each in handlers)
