"""What becomes of a record that failed: pure decisions.

A policy is asked twice in a record's life: `decide` when its handler has failed, and `release` when
it has waited in a delay topic. Both depend only on their arguments, which include the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict, Unpack, get_args

from redrive import signals
from redrive.backoff import Backoff, GiveBack, InPlace, at_least_one, set_fields
from redrive.decisions import (
    Again,
    Bury,
    Decision,
    Discard,
    Park,
    Release,
    Return,
    Run,
    ToOrigin,
    Wait,
)
from redrive.durations import Duration, milliseconds, optional_milliseconds
from redrive.envelope import Envelope
from redrive.errors import ConfigurationError

AgeFrom = Literal["receipt", "record"]
OnExhausted = Literal["bury", "discard"]
Redeliver = Literal["handler", "origin"]
ErrorTypes = Sequence[type[BaseException]]
_UNCOUNTED: Final = 1000
"""Milliseconds that a record waits in place at least, after a try that does not count."""


class PolicyOptions(TypedDict, total=False):
    """The options that all ways to create a policy share."""

    first: InPlace | GiveBack | None
    extra_delays: str | Sequence[Duration]
    retry_on: ErrorTypes | None
    bury_on: ErrorTypes
    max_duration: Duration | None
    age_from: AgeFrom
    on_exhausted: OnExhausted
    redeliver: Redeliver


@dataclass(frozen=True, init=False, repr=False)
class RetryPolicy:
    """What is tried, in which order, and when to give up.

    First `first` (in place, or given back), then one hop through a delay topic for each of
    `delays`, then the record is exhausted. `RetryPolicy()` alone never retries.
    """

    delays: tuple[int, ...]
    repeat: bool
    """The last delay repeats until `max_duration` is over."""
    first: InPlace | GiveBack | None
    extra_delays: tuple[int, ...]
    """Extra delays, used only by `Retry(after=...)` to get closer to the requested time."""
    retry_on: tuple[type[BaseException], ...] | None
    bury_on: tuple[type[BaseException], ...]
    max_duration: int | None
    age_from: AgeFrom
    on_exhausted: OnExhausted
    redeliver: Redeliver

    def __init__(
        self,
        delays: str | Sequence[Duration] = (),
        *,
        repeat: bool = False,
        first: InPlace | GiveBack | None = None,
        extra_delays: str | Sequence[Duration] = (),
        retry_on: ErrorTypes | None = None,
        bury_on: ErrorTypes = (),
        max_duration: Duration | None = None,
        age_from: AgeFrom = "receipt",
        on_exhausted: OnExhausted = "bury",
        redeliver: Redeliver = "handler",
    ) -> None:
        problems: list[str] = []
        set_fields(
            self,
            delays=_delays("delays", delays, problems),
            repeat=repeat,
            first=_first(first, problems),
            extra_delays=_delays("extra_delays", extra_delays, problems),
            retry_on=None if retry_on is None else error_types("retry_on", retry_on, problems),
            bury_on=error_types("bury_on", bury_on, problems),
            max_duration=optional_milliseconds("max_duration", max_duration, problems),
            age_from=_word("age_from", age_from, AgeFrom, problems),
            on_exhausted=_word("on_exhausted", on_exhausted, OnExhausted, problems),
            redeliver=_word("redeliver", redeliver, Redeliver, problems),
        )
        problems += self._contradictions()
        if problems:
            raise ConfigurationError([f"RetryPolicy: {problem}" for problem in problems])

    @classmethod
    def every(
        cls, interval: Duration, *, until: Duration, **options: Unpack[PolicyOptions]
    ) -> RetryPolicy:
        """Retry at this interval until the record is `until` old."""
        options["max_duration"] = until
        return cls([interval], repeat=True, **options)

    @classmethod
    def exponential(
        cls,
        initial: Duration,
        *,
        factor: float = 2,
        cap: Duration = "1h",
        attempts: int,
        **options: Unpack[PolicyOptions],
    ) -> RetryPolicy:
        """Delays that grow by `factor` up to `cap`; `attempts` counts all calls, even the first."""
        at_least_one("RetryPolicy.exponential", attempts)
        backoff = Backoff(initial, factor=factor, cap=cap, jitter=0)
        waits = [backoff.wait(number) / 1000 for number in range(1, attempts)]
        return cls(waits, **options)

    @property
    def hops(self) -> tuple[int, ...]:
        """The distinct delays in use, shortest first: one delay topic each."""
        return tuple(sorted({*self.delays, *self.extra_delays}))

    def decide(
        self, envelope: Envelope, error: BaseException, now: int, tries: int = 1, held: int = 0
    ) -> Decision:
        """What becomes of a record whose handler just failed.

        `tries` counts the calls within this attempt: in place, or given back. `held` is how long it
        has waited for the end of an outage: so much older it may be.
        """
        error = signal_in(error) or error
        if isinstance(error, signals.Bury):
            return Bury("rejected")
        if not self._retryable(error):
            return Bury("not-retryable")
        asked, counts = self._asked(error)
        if not self.hops or (asked is None and counts):
            again = self._try_first(envelope, now, tries, asked or 0, counts=counts, held=held)
            if again is not None:
                return again
        return self._park(envelope, now, asked, counts=counts, held=held)

    def release(self, envelope: Envelope, now: int, due: int, delay: int, held: int = 0) -> Release:
        """What becomes of a record in the topic of that delay, where it is due at `due`.

        `held` as for `decide`.
        """
        run = self.at_once(envelope)
        if isinstance(run, ToOrigin) and self.expired(envelope, now - held):
            return self._exhausted("expired")
        if now < due:
            return Wait(due)
        if envelope.not_before is not None and now < envelope.not_before:
            # A policy without delays falls back to that of the topic that the record came from.
            hops = self.hops or (delay,)
            return hop_towards(envelope.not_before, hops, envelope.attempt, now)
        return run

    def at_once(self, envelope: Envelope) -> Run | ToOrigin:
        """What becomes of a parked record that an operator has let go, due or not, however old."""
        # A record that waits for its recovery is already over: only the recovery is left to do.
        to_origin = self.redeliver == "origin" and envelope.dead_reason is None
        return ToOrigin() if to_origin else Run()

    def expired(self, envelope: Envelope, now: int) -> bool:
        """Whether the record is older than the policy allows."""
        return self.max_duration is not None and now > self._born(envelope) + self.max_duration

    def park_instead(self, envelope: Envelope, now: int) -> Park | None:
        """Where a record goes that can no longer wait in place; None if there is nowhere."""
        decision = self._park(envelope, now, None)
        return decision if isinstance(decision, Park) else None

    def recover_later(self, envelope: Envelope, now: int) -> Park | None:
        """Where a record waits after its recovery failed; None if there is no delay topic."""
        if not self.hops:
            return None
        delay = self.hops[0]
        return Park(delay, now + delay, envelope.attempt)

    def ending(self, reason: str) -> Bury | Discard:
        """How a record ends for that reason: only an exhausted record may be discarded."""
        return self._exhausted(reason) if reason in ("exhausted", "expired") else Bury(reason)

    def _asked(self, error: BaseException) -> tuple[int | None, bool]:
        """How long the handler wants its record to wait, and whether that is an attempt."""
        if isinstance(error, signals.Outage):
            return error.retry_after, True
        if not isinstance(error, signals.Retry):
            return None, True
        # Without an end to it, a record that never counts would be retried for ever.
        return error.after, error.counts or self.max_duration is None

    def _retryable(self, error: BaseException) -> bool:
        if isinstance(error, signals.Retry | signals.Outage):
            # The handler has said so itself: `except KeyError: raise Retry(...)` is a Retry, even
            # though the KeyError that it answered is still its context.
            return not isinstance(error, self.bury_on)
        chain = list(causes(error))
        if any(isinstance(cause, self.bury_on) for cause in chain):
            return False
        return self.retry_on is None or any(isinstance(cause, self.retry_on) for cause in chain)

    def _try_first(
        self, envelope: Envelope, now: int, tries: int, at_least: int, *, counts: bool, held: int
    ) -> Decision | None:
        # Only before the record was ever parked: `first` is not repeated later.
        if self.first is None or envelope.attempt > 1:
            return None
        if counts and self.first.attempts is not None and tries >= self.first.attempts:
            return None
        seed = f"{envelope.origin_topic}/{envelope.origin_partition}/{envelope.origin_offset}"
        wait = max(self.first.backoff.wait(tries, seed), at_least, 0 if counts else _UNCOUNTED)
        if self.expired(envelope, now + wait - held):
            return None if self.hops else self._exhausted("expired")
        return Again(wait, counts) if isinstance(self.first, InPlace) else Return(wait, counts)

    def _park(
        self,
        envelope: Envelope,
        now: int,
        asked: int | None,
        *,
        counts: bool = True,
        held: int = 0,
    ) -> Park | Bury | Discard:
        step = envelope.attempt - 1
        used_up = counts and step >= len(self.delays) and not self.repeat and bool(self.delays)
        if not self.hops or used_up:
            return self._exhausted("exhausted")
        if asked is not None:
            park = hop_towards(now + asked, self.hops, envelope.attempt + counts, now)
        elif not self.delays:  # only extra_delays, and the handler named no time
            return self._exhausted("exhausted")
        else:
            # The delay of the next hop, not of the last one.
            delay = self.delays[min(step, len(self.delays) - 1)]
            park = Park(delay, now + delay, envelope.attempt + counts)
        if self.expired(envelope, self._arrival(park) - held):
            return self._exhausted("expired")
        return park

    def _arrival(self, park: Park) -> int:
        """When its handler will run, after all remaining hops."""
        if park.not_before is None:
            return park.due
        rest = park.not_before - park.due
        for hop in reversed(self.hops):
            rest %= hop
        return park.not_before + (self.hops[0] - rest if rest else 0)

    def _exhausted(self, reason: str) -> Bury | Discard:
        return Discard(reason) if self.on_exhausted == "discard" else Bury(reason)

    def _born(self, envelope: Envelope) -> int:
        if self.age_from == "record" and envelope.origin_timestamp is not None:
            return envelope.origin_timestamp
        return envelope.first_received

    def _contradictions(self) -> Iterator[str]:
        if self.repeat and self.max_duration is None:
            yield "repeat=True needs max_duration, or the record would be retried forever"
        if self.repeat and not self.delays:
            yield "repeat=True needs at least one delay to repeat"
        if self.extra_delays and not self.delays and self.max_duration is None:
            yield "extra_delays alone need max_duration, or a record could be retried forever"
        if self.redeliver == "origin" and not self.hops:
            yield (
                'redeliver="origin" needs delays: a record waits in a delay topic before it is'
                " written back"
            )
        for cls in set(self.retry_on or ()) & set(self.bury_on):
            yield f"{cls.__name__} is in both retry_on and bury_on"

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        told = ", ".join(f"{name}={value!r}" for name, value in shown if value not in ((), None))
        return f"RetryPolicy({told})"


def hop_towards(target: int, delays: Sequence[int], attempt: int, now: int) -> Park:
    """One hop towards the target: the longest delay that fits, or the shortest for the rest."""
    left = target - now
    delay = max((hop for hop in delays if hop <= left), default=delays[0])
    due = now + delay
    return Park(delay, due, attempt, target if target > due else None)


def signal_in(error: BaseException) -> signals.Signal | None:
    """The signal that a handler raised, directly or in one of the tasks of a task group."""
    first: signals.Signal | None = None
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if isinstance(current, signals.Bury):
            return current  # one task that says "never" outweighs those that say "later"
        if isinstance(current, signals.Signal):
            first = current if first is None else first
        elif isinstance(current, BaseExceptionGroup):
            waiting.extend(reversed(current.exceptions))
    return first


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and the members of groups: each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting.append(current.__cause__)
        if not current.__suppress_context__:
            waiting.append(current.__context__)
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)


def _delays(name: str, given: str | Sequence[Duration], problems: list[str]) -> tuple[int, ...]:
    if isinstance(given, str):
        given = given.split()
    if not isinstance(given, Iterable):
        problems.append(f'{name} is {given!r}; write a string ("5m 30m") or a list of durations')
        return ()
    parts: Sequence[Duration] = tuple(given)
    delays: list[int] = []
    for part in parts:
        try:
            delays.append(milliseconds(part))
        except ConfigurationError as mistake:
            problems.append(f"{name}: {mistake}")
    if any(delay == 0 for delay in delays):
        problems.append(f"{name}: a delay of 0 would retry in a busy loop; use first=InPlace(...)")
    return tuple(delays)


def error_types(
    name: str, given: ErrorTypes, problems: list[str]
) -> tuple[type[BaseException], ...]:
    """Classes of errors, as an option names them; mistakes are appended to the problems."""
    if not isinstance(given, Iterable):
        named = getattr(given, "__name__", repr(given))
        problems.append(f"{name} is {named}; write a list: {name}=[{named}]")
        return ()
    classes: list[type[BaseException]] = []
    for cls in given:
        if isinstance(cls, type) and issubclass(cls, BaseException):
            classes.append(cls)
        else:
            problems.append(f"{name}: {cls!r} is not an exception class")
    return tuple(classes)


def _first(given: object, problems: list[str]) -> object:
    if given is not None and not isinstance(given, InPlace | GiveBack):
        problems.append(f"first is {given!r}; it can be InPlace(...) or GiveBack(...)")
    return given


def _word(name: str, given: str, allowed: object, problems: list[str]) -> str:
    words: Final = get_args(allowed)
    if given not in words:
        problems.append(f"{name} is {given!r}; it can be {' or '.join(map(repr, words))}")
    return given
