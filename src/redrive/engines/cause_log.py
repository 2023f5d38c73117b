"""CauseLog: logs why records fail: a new cause at once, with its trace, then how often."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final

from redrive.numbers import counted
from redrive.processing.outcomes.causes import AGAIN, OTHERS, Cause, Seen
from redrive.tuning import CAUSES_EVERY, CAUSES_FORGOTTEN_AFTER, MOST_CAUSES

log: Final = logging.getLogger("redrive.causes")

_WORDS: Final = {
    "park": "parked",
    "bury": "buried",
    "discard": "discarded",
    "hop": "left waiting",
    AGAIN: "tried again",
}
_REPEATED: Final = ("hop", AGAIN)
"""Kinds that one record has again and again: not as many records as times."""
_LEVELS: Final = dict.fromkeys(("bury", "discard", "hop"), logging.WARNING)


@dataclass(slots=True)
class _State:
    last: Seen
    at: float
    total: int
    more: int = 0
    """Since its last line."""


class CauseLog:
    """The causes of one run, for the operator. Thread-safe."""

    def __init__(self, app: str, clock: Callable[[], float] = monotonic) -> None:
        self._app = app
        self._clock = clock
        self._states: dict[Cause, _State] = {}
        self._said_at = clock()
        self._lock = Lock()

    def add(self, seen: Iterable[Seen]) -> None:
        """Add what was counted; new causes are logged at once."""
        with self._lock:
            for each in seen:
                self._add(each)
        self.tick()

    def tick(self) -> None:
        """Say how often causes were seen since they were last spoken of, if it is time."""
        if self._clock() - self._said_at >= CAUSES_EVERY:
            self.sum_up()

    def sum_up(self) -> None:
        """Log it now: at the end of a run."""
        with self._lock:
            now = self._clock()
            seconds, self._said_at = now - self._said_at, now
            for cause, state in list(self._states.items()):
                if state.more:
                    text = _how_often(cause, state, seconds)
                    self._say(text, state.last, state.more, state)
                    state.more = 0
                elif now - state.at > CAUSES_FORGOTTEN_AFTER:
                    del self._states[cause]

    def _add(self, seen: Seen) -> None:
        cause, now = seen.cause, self._clock()
        state = self._states.get(cause)
        if state is None and len(self._states) >= MOST_CAUSES:
            others = cause.fingerprint.__class__(cause.fingerprint.reason, OTHERS)
            seen.cause = cause = Cause(cause.kind, cause.topic, others)
            state = self._states.get(cause)
        if state is None:
            state = self._states[cause] = _State(seen, now, seen.count)
            number = "a record was" if seen.count == 1 else f"{seen.count:,} records were"
            self._say(f"{number} {_what(cause)}", seen, seen.count, state, trace=seen.trace)
            return
        state.last, state.at = seen, now
        state.total += seen.count
        state.more += seen.count

    def _say(self, what: str, seen: Seen, count: int, state: _State, trace: str = "") -> None:
        cause = seen.cause
        level = _LEVELS.get(cause.kind, logging.INFO)
        if not log.isEnabledFor(level):
            return
        found = cause.fingerprint
        why = f"{found.error}: {seen.message}" if seen.message else found.error or "no error"
        where = f" in {found.where}" if found.where else ""
        attempt = f", attempt {seen.attempt}" if seen.attempt else ""
        line = log.makeRecord(
            log.name,
            level,
            __file__,
            0,
            "%s: %s: %s%s (%s%s, cause %s)",
            (cause.topic, what, why, where, seen.place, attempt, found.id),
            None,
            extra={
                "app": self._app,
                "topic": cause.topic,
                "partition": seen.partition,
                "offset": seen.offset,
                "id": seen.id,
                "attempt": seen.attempt,
                "outcome": cause.kind,
                "reason": found.reason,
                "error": found.error,
                "frames": list(found.frames),
                "cause": found.id,
                "count": count,
                "total": state.total,
            },
        )
        line.exc_text = trace or None  # what every formatter writes below the line
        log.handle(line)


def _how_often(cause: Cause, state: _State, seconds: float) -> str:
    what = _what(cause)
    if cause.kind in _REPEATED:
        more, total = counted(state.more, "time"), counted(state.total, "time")
        return f"{what} {more} more within {seconds:.0f} s, {total} in total"
    return f"{state.more:,} more {what} within {seconds:.0f} s, {state.total:,} in total"


def _what(cause: Cause) -> str:
    reason = cause.fingerprint.reason
    return f"{_WORDS.get(cause.kind, cause.kind)}{f' ({reason})' if reason else ''}"
