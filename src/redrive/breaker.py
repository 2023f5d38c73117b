"""Breaker: whether a handler's failures are an outage. A pure function of outcomes and time.

```text
            a failure that can be one              it is one              3 probes pass
    closed ---------------------------> suspect ---------------> open -------------------> ramp
       ^                                   |                      ^  <-------------------   |
       +------- others pass, or time ------+                      |     two fail in a row   |
       +-----------------------------------------------------------------------------------+
                                             as many pass at once as may run
```

While it is suspect, a record that failed is held: it is not yet known whose fault that was. If it
is an outage, all who failed wait for its end. If not, each failure is its record's own after all.
All times are steady ones, in milliseconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from redrive.guard import Guard, State
from redrive.tuning import (
    GUARD_DOUBT,
    GUARD_LOOK,
    GUARD_PASSING,
    GUARD_PROBES_PASSED,
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
        self.why: Why | None = None
        """Why it is open, or was last."""
        self.probes: Counter[str] = Counter()
        """How many calls were let out while it was open, by what came of them."""
        self._concurrency = concurrency
        self._forget()

    def _forget(self) -> None:
        """Nothing was seen: no count outlives what it was counted for."""
        self._failures: deque[_Failure] = deque()
        self._held: dict[_T, _Failure] = {}
        self._passed = self._failed = 0
        self._passed_at: int | None = None
        self._news_at = self._looked_at = 0
        self._marks: dict[_T, int] = {}
        """Who has failed in this outage, and how many had passed before the first time."""
        self._begun: set[_T] = set()
        """Those that were let out."""
        self._probe_at = 0
        self._probes_failed = self._in_a_row = 0
        self._limit = self._stage = 0
        self._fell: object | None = None
        """The key whose failure has set back the ramp, if nothing has passed since."""

    @property
    def is_shut(self) -> bool:
        """Whether records begin only as `may_begin` says."""
        return self.state in ("open", "ramp")

    @property
    def held(self) -> int:
        """How many failures are not yet their records' own."""
        return len(self._held)

    # What is seen

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
        self._held[token] = failure
        if self.state == "closed":
            self._become("suspect", now)
        return True

    def outage(self, token: _T, key: object, cause: str, now: int, after: int | None) -> bool:
        """Note that a handler has said that there is one; as for `failed`."""
        if self.is_shut:
            waits = self._failed_in_outage(token, key, now)
            if after is not None:
                self._probe_at = max(self._probe_at, now + after)
            return waits
        self._open(Why(cause, len(self._failures) + 1, 1, 0, 0), now)
        self._marks[token] = self._passed
        if after is not None:
            self._probe_at = now + after
        return True

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
        self._begun.remove(token)
        self._marks.pop(token, None)
        self._passed += 1
        self._fell = None
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
        """Note that one that was let out says nothing: it was not called, or failed otherwise."""
        if token in self._begun:
            self._begun.remove(token)
            self._probe_at = now

    def forget(self, token: _T) -> None:
        """Somebody else has that record now."""
        self._held.pop(token, None)
        self._marks.pop(token, None)

    # What follows

    def look(self, now: int, *, stalled: bool) -> Looked[_T]:
        """Decide about what was held.

        `stalled` says that nothing more can be seen: no call runs, and none may begin.
        """
        if self.state != "suspect" or now - self._looked_at < GUARD_LOOK:
            return Looked()
        self._looked_at = now
        while self._failures and now - self._failures[0].at > self.guard.window:
            self._failures.popleft()
        why = self._outage_seen(now)
        if why is not None:
            self._open(why, now)
            return Looked()
        stalled = stalled and now - self._news_at >= GUARD_SETTLE
        if stalled and (again := self._missing()):
            return Looked(again=self._release(again))
        own = [token for token, each in self._held.items() if self._is_own(each, now, stalled)]
        self._release(own)
        if not self._failures and not self._held:
            self._forget()
            self._become("closed", now)
        return Looked(own)

    def _missing(self) -> list[_T]:
        """Those that have to fail once more: nobody else is left who could, and all have failed."""
        alone = {token: each for token, each in self._held.items() if not self._others_pass(each)}
        return [*alone] if len({each.key for each in alone.values()}) >= self.guard.keys else []

    def _release(self, tokens: list[_T]) -> list[_T]:
        for token in tokens:
            del self._held[token]
        return tokens

    def may_begin(self, now: int) -> int:
        """How many calls may begin now, while it is shut."""
        if self.state == "open":
            return int(not self._begun and now >= self._probe_at)
        return max(0, self._limit - len(self._begun))

    def begin(self, token: _T) -> None:
        """Note that a record is let out."""
        self._begun.add(token)

    def begun(self) -> list[_T]:
        """Those that were let out."""
        return list(self._begun)

    def next_look(self) -> int | None:
        """When something has to be decided, or let out; None: not by itself."""
        if self.state == "suspect" and self._held:
            return self._looked_at + GUARD_LOOK
        if self.state == "open" and not self._begun:
            return self._probe_at
        return None

    def _outage_seen(self, now: int) -> Why | None:
        """By the latest failures of one cause, as many as are needed: what was before is over."""
        since = self.since if self._passed_at is None else self._passed_at
        quiet = now - since >= GUARD_SETTLE
        seen: dict[str, tuple[int, set[object]]] = {}
        decided: set[str] = set()
        for each in reversed(self._failures):
            if each.cause in decided:
                continue
            count, keys = seen.get(each.cause, (0, set()))
            keys.add(each.key)
            count += 1
            seen[each.cause] = (count, keys)
            many = count >= self.guard.failures and len(keys) >= self.guard.keys
            if many and (quiet or now - each.at >= GUARD_SETTLE):
                decided.add(each.cause)
                passed = self._passed - each.passed
                if passed <= GUARD_PASSING * (count + passed):
                    return Why(each.cause, count, len(keys), passed, now - each.at)
        return None

    def _is_own(self, failure: _Failure, now: int, stalled: bool) -> bool:  # noqa: FBT001 -- of this class only
        """Whether a failure is its record's own: others have passed, or nothing more is seen."""
        age = now - failure.at
        if stalled or age >= self.guard.window:
            return True
        return age >= GUARD_DOUBT and self._others_pass(failure)

    def _others_pass(self, failure: _Failure) -> bool:
        passed, failed = self._passed - failure.passed, self._failed - failure.failed + 1
        return passed > GUARD_PASSING * (passed + failed)

    def _failed_in_outage(self, token: _T, key: object, now: int) -> bool:
        was_let_out = token in self._begun
        self._begun.discard(token)
        if was_let_out and self.state == "open":
            self.probes["failed"] += 1
        mark = self._marks.get(token)
        others = 0 if mark is None else self._passed - mark
        if others >= GUARD_PROBES_PASSED:
            del self._marks[token]  # it fails alone
            if was_let_out:
                self._probe_at = now
            return False
        self._marks.setdefault(token, self._passed)
        if not was_let_out:
            return True  # it began before
        if self.state == "open":
            if not others:  # else it has failed before, and only itself is known to fail
                self._in_a_row = 0
                self._probes_failed += 1
            self._probe_at = now + self.guard.probes.wait(self._probes_failed + 1)
        else:
            self._set_back(key, now)
        return True

    def _set_back(self, key: object, now: int) -> None:
        """The ramp begins again after one failure; after two in a row there still is an outage."""
        if self._fell is not None and self._fell != key:
            self._become("open", now)
            self._wait_for_probe(now)
        self._fell, self._limit, self._stage = key, 1, 0

    def _open(self, why: Why, now: int) -> None:
        self.why = why
        self.opened = now
        held = self._held
        self._forget()
        self._marks = dict.fromkeys(held, 0)
        self._become("open", now)
        self._wait_for_probe(now)

    def _wait_for_probe(self, now: int) -> None:
        self._probes_failed = self._in_a_row = 0
        self._fell = None
        self._probe_at = now + self.guard.probes.wait(1)

    def _ramp(self, now: int) -> None:
        self._limit, self._stage, self._fell = 1, 0, None
        self._become("ramp", now)

    def _widen(self, now: int) -> None:
        self._limit, self._stage = 2 * self._limit, 0
        if self._limit > self._concurrency:
            self._forget()
            self._become("closed", now)

    def _become(self, state: State, now: int) -> None:
        self.state, self.since = state, now
