"""Breaker: whether a handler's failures are an outage. A pure function of outcomes and time.

```text
            a failure that can be one              it is one              3 probes pass
    closed ---------------------------> suspect ---------------> open -------------------> ramp
       ^                                   |                      ^  <-------------------   |
       +------- others pass, or time ------+                      |     two fail in a row   |
       +-----------------------------------------------------------------------------------+
                               as many pass at once as may run, or nothing waits any more
```

While it is suspect, a record that failed is held: it is not yet known whose fault that was. If it
is an outage, all who failed wait for its end. If not, each failure is its record's own after all.
All times are steady ones, in milliseconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from redrive.guard import Guard, State
from redrive.tuning import (
    GUARD_AFTER_LONGEST,
    GUARD_DOUBT,
    GUARD_LOOK,
    GUARD_PASSING,
    GUARD_PROBES_LATE,
    GUARD_PROBES_PASSED,
    GUARD_QUIET,
    GUARD_SETTLE,
)

_T = TypeVar("_T", bound=Hashable)
"""A record, as its owner knows it."""


@dataclass(frozen=True, slots=True)
class Why:
    """The numbers that decided that there is an outage."""

    cause: str
    """The fingerprint that the failures have in common."""
    failures: int
    keys: int
    passed: int
    within: int
    """Milliseconds."""


class _Mark(NamedTuple):
    """How many had passed, and failed, when a record has failed for the first time."""

    passed: int
    failed: int


class _Failure(NamedTuple):
    at: int
    key: object
    cause: str
    passed: int
    """How many calls had succeeded before it."""
    failed: int
    """How many had failed."""


@dataclass(frozen=True, slots=True)
class Looked(Generic[_T]):
    """Who is held no longer."""

    own: Sequence[_T] = ()
    """Those whose failure is their own."""
    again: Sequence[_T] = ()
    """Those that are to be called once more, as if they had not been called."""


class Breaker(Generic[_T]):
    """What was seen of one handler's calls in this process, and what follows from it."""

    def __init__(self, guard: Guard, concurrency: int) -> None:
        self.guard = guard
        self.state: State = "closed"
        self.since = 0
        """When that state began."""
        self.opened = 0
        """When the outage was seen."""
        self.ended: int | None = None
        """When the latest outage was over; None while there is one, or was none."""
        self.why: Why | None = None
        """Why it is open, or was last."""
        self.probes: Counter[str] = Counter()
        """How many calls were let out while it was open, by what came of them."""
        self._concurrency = concurrency
        self._forget()

    def _forget(self) -> None:
        """Nothing was seen: no count outlives what it was counted for."""
        self._failures: deque[_Failure] = deque()
        self._causes: Counter[str] = Counter()
        """How many of these failures each fingerprint has."""
        self._held: dict[_T, _Failure] = {}
        self._passed = self._failed = 0
        self._passed_at: int | None = None
        self._news_at = self._looked_at = 0
        self._took = 0.0
        """Milliseconds that calls took which have failed, on average: the latest count most."""
        self._marks: dict[_T, _Mark] = {}
        """Who has failed since this state began."""
        self._begun: dict[_T, int | None] = {}
        """Those that were let out, and when they were called."""
        self._probe_at = 0
        """Before that time nobody is let out."""
        self._probes_failed = self._in_a_row = 0
        self._limit = self._stage = 0
        self._fell: object | None = None
        """The key whose failure has set back the ramp, if nothing has passed since."""
        self._falls = 0
        """How many have failed in the ramp since something has passed."""

    @property
    def is_shut(self) -> bool:
        """Whether records begin only as `may_begin` says."""
        return self.state in ("open", "ramp")

    @property
    def held(self) -> int:
        """How many failures are not yet their records' own."""
        return len(self._held)

    @property
    def window(self) -> int:
        """Within which time the failures have to come.

        Where calls take seconds to fail, perhaps one after the other, it is as long as they need.
        """
        return max(self.guard.window, int(self._took * (self.guard.failures + 1)))

    # What is seen

    def took(self, milliseconds: float) -> None:
        """Note how long a call took that has failed."""
        before = self._took or milliseconds
        self._took = 0.8 * before + 0.2 * milliseconds

    def failed(self, token: _T, key: object, cause: str, now: int) -> bool:
        """Note a failure that can be an outage; whether its record has to wait for the end of it.

        Else it is the record's own.
        """
        if self.is_shut:
            return self._failed_in_outage(token, key, now)
        self._failed += 1
        self._news_at = now
        failure = _Failure(now, key, cause, self._passed, self._failed)
        self._failures.append(failure)
        self._causes[cause] += 1
        self._held[token] = failure
        if self.state == "closed":
            self._become("suspect", now)
        return True

    def outage(self, token: _T, key: object, cause: str, now: int, after: int | None) -> bool:
        """Note that a handler has said that there is one; as for `failed`."""
        wait = 0 if after is None else min(after, GUARD_AFTER_LONGEST)
        if self.is_shut:
            waits = self._failed_in_outage(token, key, now)
            if waits:
                self._probe_at = max(self._probe_at, now + wait)
            return waits
        self._open(Why(cause, len(self._failures) + 1, 1, 0, 0), now)
        if after is not None:
            self._probe_at = now + wait
        return True

    def told(self, why: Why, now: int, after: int | None = None) -> None:
        """Note that somebody else has seen an outage; the first probe is after so long, if said."""
        if not self.is_shut:
            self._open(why, now)
            if after is not None:
                self._probe_at = now + min(after, GUARD_AFTER_LONGEST)

    def passed(self, count: int, now: int) -> None:
        """Note calls that have succeeded; those that were let out are said by `let_out_passed`."""
        if self.state == "suspect":
            self._passed += count
            self._passed_at = self._news_at = now

    def let_out_passed(self, token: _T, now: int) -> None:
        """Note that one that was let out has succeeded."""
        if token not in self._begun:
            self.passed(1, now)
            return
        self._passed += 1
        self._answered(token, now)

    def let_out_answered(self, token: _T, now: int) -> None:
        """Note that one that was let out has failed by itself: what it depends on has answered.

        It is no success by which other failures are judged: it may have failed before it asked.
        """
        if token in self._begun:
            self._answered(token, now)

    def _answered(self, token: _T, now: int) -> None:
        del self._begun[token]
        self._marks.pop(token, None)
        self._news_at = now
        self._fell, self._falls = None, 0
        if self.state == "open":
            self.probes["passed"] += 1
            self._in_a_row += 1
            self._probe_at = now
            if self._in_a_row >= GUARD_PROBES_PASSED:
                self._ramp(now)
        elif self.state == "ramp":
            self._stage += 1
            if self._stage >= self._limit:
                self._widen(now)

    def let_out_ended(self, token: _T, now: int) -> None:
        """Note that one that was let out says nothing: it was not called, or nobody will hear."""
        if token in self._begun:
            del self._begun[token]
            self._probe_at = max(self._probe_at, now)

    def forget(self, token: _T) -> None:
        """Somebody else has that record now."""
        self._held.pop(token, None)
        self._marks.pop(token, None)

    # What follows

    def is_to_look(self, now: int) -> bool:
        """Whether it is time to decide about what is held."""
        return self.state == "suspect" and now - self._looked_at >= GUARD_LOOK

    def look(self, now: int, *, stalled: bool, lanes: int | None = None) -> Looked[_T]:
        """Decide about what was held.

        `stalled` says that nothing more can be seen: no call runs, and none may begin. `lanes` says
        that it is their order that keeps other keys from being tried: each of so many lanes has
        failed.
        """
        if not self.is_to_look(now):
            return Looked()
        self._looked_at = now
        keys = self._keys_needed(lanes)
        if self._opens(now, keys):
            return Looked()
        stalled = stalled and now - self._news_at >= GUARD_SETTLE
        if stalled and (again := self._missing(keys)):
            return Looked(again=self._release(again))
        own = [token for token, each in self._held.items() if self._is_own(each, now, stalled)]
        self._release(own)
        if not self._failures and not self._held:
            self._close(now)
        return Looked(own)

    def settle(self, now: int, *, lanes: int | None = None) -> Looked[_T]:
        """Decide at once about all that is held: nothing more will be seen of it.

        `lanes` as for `look`.
        """
        if self.state != "suspect":
            return Looked()
        keys = self._keys_needed(lanes)
        if self._opens(now, keys):
            return Looked()
        again = self._release(self._missing(keys))
        own = self._release([*self._held])
        if not self._failures:
            self._close(now)
        return Looked(own, again)

    @property
    def time_decides(self) -> bool:
        """Whether some are held that will be let go by themselves, as others have passed."""
        return any(self._others_pass(each) for each in self._held.values())

    @property
    def undecided(self) -> Iterator[tuple[_T, object, str, int, int]]:
        """Whose failures are held: record, key, fingerprint, when, and how many had passed."""
        for token, each in self._held.items():
            yield token, each.key, each.cause, each.at, each.passed

    @property
    def taking(self) -> float:
        """Milliseconds that calls take which fail."""
        return self._took

    @property
    def seen_passing(self) -> int:
        """How many calls have succeeded since something is held."""
        return self._passed

    def _keys_needed(self, lanes: int | None) -> int:
        return self.guard.keys if lanes is None else min(lanes, self.guard.keys)

    def _opens(self, now: int, keys: int) -> bool:
        window = self.window
        while self._failures and now - self._failures[0].at > window:
            self._causes[self._failures.popleft().cause] -= 1
        why = self._outage_seen(now, keys)
        if why is not None:
            self._open(why, now)
        return why is not None

    def _missing(self, keys: int) -> list[_T]:
        """Those that have to fail once more: nobody else is left who could, and all have failed."""
        alone = {token: each for token, each in self._held.items() if not self._others_pass(each)}
        return [*alone] if len({each.key for each in alone.values()}) >= keys else []

    def _release(self, tokens: list[_T]) -> list[_T]:
        for token in tokens:
            del self._held[token]
        return tokens

    def may_begin(self, now: int) -> int:
        """How many calls may begin now, while it is shut."""
        most = 1 if self.state == "open" else self._limit
        blocking = sum(not self._is_late(called, now) for called in self._begun.values())
        if now < self._probe_at or len(self._begun) - blocking >= GUARD_PROBES_LATE:
            return 0
        return max(0, most - blocking)

    def _is_late(self, called: int | None, now: int) -> bool:
        """Whether nobody waits any more for a call: it may never end, or be acknowledged."""
        return called is not None and now - called >= self.guard.probes.cap

    def begin(self, token: _T) -> None:
        """Note that a record is let out; it keeps others from it until it has ended, or is late."""
        self._begun[token] = None

    def called(self, token: _T, now: int) -> None:
        """Note that a thread has begun with one that was let out."""
        if token in self._begun:
            self._begun[token] = now

    def known_as(self, given: _T, token: _T) -> None:
        """Note which record it was that was let out, where only now somebody knows."""
        if given in self._begun:
            self._begun[token] = self._begun.pop(given)

    @property
    def free_at(self) -> int:
        """Since when, or from when on, somebody may be let out."""
        return max(self._probe_at, self.since)

    def nothing_waits(self, now: int) -> None:
        """Note that nobody waits to be let out: if the last ones have passed, the outage is over.

        Only after a moment: more may be about to be read.
        """
        quiet = now - max(self._news_at, self.since) >= GUARD_QUIET
        if self.state == "ramp" and quiet and not self._begun and self._fell is None:
            self._close(now)

    def few_wait(self, now: int) -> None:
        """Note that no more wait to be let out than could be an outage, whatever came of them.

        Then the outage is over: as long as it is closed, failures of so few are their records' own.
        """
        quiet = now - max(self._news_at, self.since) >= GUARD_QUIET
        if self.state == "ramp" and quiet and not self._begun:
            self._close(now)

    def begun(self) -> list[_T]:
        """Those that were let out."""
        return list(self._begun)

    def next_look(self, after: int = -1) -> int | None:
        """When something has to be decided, or let out, after that time; None: not by itself."""
        return min((time for time in self._looks() if time > after), default=None)

    def _looks(self) -> Iterator[int]:
        if self.state == "suspect" and self._held:
            yield self._looked_at + GUARD_LOOK
        if not self.is_shut:
            return
        if self.state == "ramp" or not self._begun:
            yield self._probe_at
        if self.state == "ramp" and not self._begun and self._fell is None:
            yield max(self._news_at, self.since) + GUARD_QUIET
        for called in self._begun.values():
            if called is not None:
                yield max(self._probe_at, called + self.guard.probes.cap)

    def _outage_seen(self, now: int, keys_needed: int) -> Why | None:
        """By the latest failures of one cause, as many as are needed: what was before is over."""
        possible = {cause for cause, many in self._causes.items() if many >= self.guard.failures}
        if not possible:
            return None
        since = self.since if self._passed_at is None else self._passed_at
        quiet = now - since >= GUARD_SETTLE
        seen: dict[str, tuple[int, set[object]]] = {}
        for each in reversed(self._failures):
            if each.cause not in possible:
                continue
            count, keys = seen.get(each.cause, (0, set()))
            keys.add(each.key)
            count += 1
            seen[each.cause] = (count, keys)
            many = count >= self.guard.failures and len(keys) >= keys_needed
            if many and (quiet or now - each.at >= GUARD_SETTLE):
                possible.remove(each.cause)
                passed = self._passed - each.passed
                if passed <= GUARD_PASSING * (count + passed):
                    return Why(each.cause, count, len(keys), passed, now - each.at)
                if not possible:
                    break
        return None

    def _is_own(self, failure: _Failure, now: int, stalled: bool) -> bool:  # noqa: FBT001 -- of this class only
        """Whether a failure is its record's own: others have passed, or nothing more is seen."""
        age = now - failure.at
        if stalled or age >= self.window:
            return True
        return age >= GUARD_DOUBT and self._others_pass(failure)

    def _others_pass(self, failure: _Failure) -> bool:
        passed, failed = self._passed - failure.passed, self._failed - failure.failed + 1
        return passed > GUARD_PASSING * (passed + failed)

    def _failed_in_outage(self, token: _T, key: object, now: int) -> bool:
        was_let_out = token in self._begun
        called = self._begun.pop(token, None)
        if not was_let_out or (called is not None and called < self.since):
            return True  # it began before, and says nothing of how it is now
        self._news_at = now
        self._failed += 1
        mark = self._marks.setdefault(token, _Mark(self._passed, self._failed))
        passed, failed = self._passed - mark.passed, self._failed - mark.failed + 1
        # One fewer: how soon the first came after the failure that is counted from was chance.
        share = GUARD_PASSING * (passed + failed)
        alone = passed >= GUARD_PROBES_PASSED and passed - 1 > share
        if alone:
            del self._marks[token]
        if self.state == "open":
            self.probes["failed"] += 1
            if not passed:  # else it has failed before, and only itself is known to fail
                self._in_a_row = 0
                self._probes_failed += 1
            self._probe_at = now + self.guard.probes.wait(self._probes_failed + 1)
        elif not alone:
            self._set_back(key, now)
        return not alone

    def _set_back(self, key: object, now: int) -> None:
        """The ramp begins again after one failure; after two in a row there still is an outage.

        If it is the same key again, there is nobody else to try: it is called ever more rarely.
        """
        if self._fell is not None and self._fell != key:
            self._begin_again()
            self._become("open", now)
            self._wait_for_probe(now)
            return
        self._falls += 1
        self._fell, self._limit, self._stage = key, 1, 0
        self._probe_at = now
        if self._falls > 1:
            self._probe_at += self.guard.probes.wait(self._falls - 1)

    def _open(self, why: Why, now: int) -> None:
        self.why = why
        self.opened, self.ended = now, None
        self._forget()
        self._become("open", now)
        self._wait_for_probe(now)

    def _wait_for_probe(self, now: int) -> None:
        self._probes_failed = self._in_a_row = 0
        self._probe_at = now + self.guard.probes.wait(1)

    def _ramp(self, now: int) -> None:
        self._begin_again()
        self._limit, self._stage = 1, 0
        self._become("ramp", now)

    def _begin_again(self) -> None:
        """What failed and passed until now does not tell whose fault it is from now on."""
        self._passed = self._failed = 0
        self._marks.clear()
        self._fell, self._falls = None, 0

    def _widen(self, now: int) -> None:
        self._limit, self._stage = 2 * self._limit, 0
        if self._limit > self._concurrency:
            self._close(now)

    def _close(self, now: int) -> None:
        if self.is_shut:
            self.ended = now
        self._forget()
        self._become("closed", now)

    def _become(self, state: State, now: int) -> None:
        self.state, self.since = state, now

    # Kept for somebody else

    @property
    def memory(self) -> dict[str, Any]:
        """All that it knows."""
        return {name: value for name, value in vars(self).items() if name != "guard"}

    def recall(self, memory: dict[str, Any]) -> None:
        """Know that instead."""
        vars(self).update(memory)
