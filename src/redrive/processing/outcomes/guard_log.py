"""What is said of guards: their states for operators, and a line when one opens or closes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from redrive import durations, numbers
from redrive.breaker import Breaker
from redrive.guard import State

log: Final = logging.getLogger("redrive.processing")


class GuardSeen(NamedTuple):
    """A guard, as operators see it."""

    topic: str
    state: State
    since: int
    """When that state began, in milliseconds by the clock."""
    opened: int
    """When the outage was seen, if there is one; likewise."""
    cause: str
    """The id of the fingerprint that it was seen by."""
    said: str
    """What failed, in words."""
    probes: Mapping[str, int]


class GuardLog:
    """Logs what guards do, once."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        """What has failed, in words, by source topic."""
        self._known: dict[str, str] = {}
        """The state of each that was logged last."""
        self._loud_at: dict[str, int] = {}

    def seen(self, topic: str, breaker: Breaker[Any], moved: int) -> GuardSeen:
        """A guard as it is; `moved` is what the clock is ahead of steady time."""
        why = breaker.why
        return GuardSeen(
            topic,
            breaker.state,
            breaker.since + moved if breaker.since else 0,
            breaker.opened + moved if breaker.is_shut else 0,
            why.cause if breaker.is_shut and why is not None else "",
            self.said.get(topic, "") if breaker.is_shut else "",
            dict(breaker.probes),
        )

    def say_loud(self, topic: str, breaker: Breaker[Any], steady: int) -> None:
        """Log as an error that an outage lasts longer than the app wants it to."""
        longest = breaker.guard.max_open
        lasts = steady - breaker.opened
        if breaker.state != "open" or longest is None or lasts < longest:
            return
        if steady - self._loud_at.get(topic, breaker.opened) >= longest:
            self._loud_at[topic] = steady
            log.error(
                "%s: the guard has been open for %s, longer than max_open=%s: %s. Its records wait"
                " in Kafka, and nothing is buried; what it depends on has to come back",
                topic,
                _lasted(lasts),
                durations.text(longest),
                self.said.get(topic, ""),
            )

    def note(self, topic: str, breaker: Breaker[Any], steady: int) -> None:
        """Log what has changed."""
        before = self._known.get(topic, "closed")
        after = breaker.state
        if before == after:
            return
        self._known[topic] = after
        why = breaker.why
        if after == "open" and why is not None:
            if before == "ramp":
                log.warning(
                    "%s: the guard is open again: while its records were let through, two of"
                    " different keys have failed in a row (%s); the next probe is in %s",
                    topic,
                    self.said.get(topic, ""),
                    _lasted((breaker.next_look(steady) or steady) - steady),
                )
                return
            log.warning(
                "%s: the guard is open: %s of %s, %s, within %s (%s, group %s). Its records wait,"
                " and no attempt is counted; the next probe is in %s",
                topic,
                numbers.counted(why.failures, "failure", "failures"),
                numbers.counted(why.keys, "key", "keys"),
                numbers.counted(why.passed, "success", "successes"),
                _lasted(why.within),
                self.said.get(topic, ""),
                why.cause,
                _lasted(max(0, (breaker.next_look() or steady) - steady)),
            )
        elif after == "ramp":
            log.info(
                "%s: probes succeed, %s after the guard has opened: its records are let through"
                " again, one at a time at first",
                topic,
                _lasted(steady - breaker.opened),
            )
        elif before in ("open", "ramp"):
            self._loud_at.pop(topic, None)
            log.warning(
                "%s: the guard is closed: the outage lasted %s, and cost %s",
                topic,
                _lasted(steady - breaker.opened),
                numbers.counted(sum(breaker.probes.values()), "probe", "probes"),
            )


def _lasted(milliseconds: int) -> str:
    return durations.text(milliseconds if milliseconds < 10_000 else milliseconds // 1000 * 1000)


def words_of(seen: Iterable[GuardSeen]) -> str:
    """Those that are open, in one sentence; empty: none is."""
    return "; ".join(
        f"the guard of {each.topic} is {'open' if each.state == 'open' else 'half open'}:"
        f" {each.said}"
        for each in seen
        if each.opened
    )
