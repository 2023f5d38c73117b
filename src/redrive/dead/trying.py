"""Trying: runs the app's current code on letters, without effects, to see which would pass now.

Sends are collected and not written, `ctx.db` is rolled back, resources are those that are named for
it. Where that cannot be had, it stops after decoding, and says so. What a handler does behind
redrive's back, such as a call by a global client, or a COMMIT as a statement, is done: `ctx.trying`
tells it not to. A letter that does not end in time is given up, with its thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from redrive import envelope as envelopes
from redrive.dead.acknowledgement import patience_of
from redrive.dead.examples import Failure, Sent, failure, sent
from redrive.dead.fixing import Fix, FixError, fixed, record_of
from redrive.dead.groups import OTHERS
from redrive.dead.letter import Letter
from redrive.dead.patience import Patience
from redrive.dead.rolled_back import RolledBack
from redrive.dead.scan import Found, Scanned
from redrive.dead.showing import See, Seen
from redrive.dead.trial_calls import call
from redrive.durations import Duration, milliseconds
from redrive.errors import ConfigurationError, EnvelopeError, HandlerTimeout
from redrive.processing.calls import invoke
from redrive.processing.calls.scope import Scope
from redrive.processing.outcomes.causes import own_modules
from redrive.processing.work import Assigned, Pending, Work
from redrive.record import Record, TopicPartition, Write
from redrive.tuning import DEAD_GROUPS, TRIAL_GRACE, TRIAL_TIMEOUT

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.filters import Filter
    from redrive.dead.letters import DeadLetters
    from redrive.handler import Handler
    from redrive.processing.work import Result

Verdict = Literal[
    "pass",
    "fail",
    "decoded",
    "no-handler",
    "fix-failed",
    "not-acknowledged",
    "not-ended",
    "not-rolled-back",
]
"""`decoded`: it can be decoded now, and no more than that was tried; `not-acknowledged`: its
handler acknowledges by itself, and has not done so in time; `not-ended`: its fix, decoder or
handler has not come to an end in time; `not-rolled-back`: its handler has
ended the transaction itself, so that it may have had effects, whether it passed or failed."""
WOULD_PASS: Final = ("pass", "decoded", "no-handler")
"""Verdicts that are no bad news; `redrive dead try` ends with 1 where there are others."""


class Trial(NamedTuple):
    """What would come of one letter now."""

    found: Found
    verdict: Verdict
    sends: list[Write]
    error: BaseException | None = None
    fixed: Letter | None = None
    """With the value that it was tried with, if a fix made it."""


@dataclass
class GroupTrial:
    """What would come of the letters of one group."""

    group: str
    error_type: str | None
    verdicts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """How they would fail: by class."""
    examples: dict[str, Failure] = field(default_factory=dict)
    """The first failure of each class."""
    sends: Counter[str] = field(default_factory=Counter)
    """Messages that would be sent, by topic."""
    sent: list[Sent] = field(default_factory=list)
    """The first of them, as many as were asked for."""

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "group": self.group,
            "error_type": self.error_type,
            "verdicts": dict(self.verdicts),
            "errors": dict(self.errors),
            "examples": {name: each._asdict() for name, each in self.examples.items()},
            "sends": dict(self.sends),
            "sent": [each._asdict() for each in self.sent],
        }


@dataclass
class Trials:
    """What would come of all of them, by group."""

    scanned: Scanned
    limits: list[str]
    """Why handlers were not called, or not for all letters."""
    groups: dict[str, GroupTrial] = field(default_factory=dict)
    show_sends: int = 0
    """How many messages of each group are kept to be shown."""
    own: frozenset[str] = frozenset()
    """Modules that are the user's code, wherever they are installed."""
    total: Counter[str] = field(default_factory=Counter)
    """Verdicts of all groups."""
    stopped: str = ""
    """Why not all letters were tried."""

    def add(self, trial: Trial, see: See) -> None:
        """Count one; `see`: what may be seen of a letter."""
        seen = see(trial.found.letter)
        looks = (seen,) if trial.fixed is None else (seen, see(trial.fixed))
        name, error_type = seen.letter.group, seen.error_type
        if name not in self.groups and len(self.groups) >= DEAD_GROUPS:
            name, error_type = OTHERS, None
        group = self.groups.setdefault(name, GroupTrial(name, error_type))
        group.verdicts[trial.verdict] += 1
        self.total[trial.verdict] += 1
        if trial.error is not None:
            error = seen.without(type(trial.error).__name__) or ""
            group.errors[error] += 1
            if error not in group.examples:
                group.examples[error] = failure(trial.error, looks, self.own)
        for write in trial.sends:
            group.sends[write.topic] += 1
            if len(group.sent) < self.show_sends:
                group.sent.append(sent(write, looks))

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "total": dict(self.total),
            "limits": self.limits,
            "stopped": self.stopped,
            "groups": [each.as_data() for each in self.groups.values()],
            "scan": self.scanned.as_data(),
        }


class Trying:
    """Tries letters of an app."""

    def __init__(
        self,
        letters: DeadLetters,
        *,
        fix: Fix | None = None,
        resources: Mapping[str, object] | None = None,
        database: str | None = None,
        show_sends: int = 0,
        timeout: Duration | None = None,
    ) -> None:
        """`show_sends`: how many messages to show of those that each group would send.

        `timeout`: the longest that a letter may take; by default that of its handler, else 30 s.
        """
        if letters.app is None:
            raise ConfigurationError("`redrive dead try` needs an app: it runs its handlers")
        self._letters = letters
        self._app: App = letters.app
        self._fix = fix
        self._resources = dict(resources or {})
        self._database = database
        self._show_sends = show_sends
        self._timeout = None if timeout is None else milliseconds(timeout) / 1000
        self._patience = Patience()
        self.limits = [*self._find_limits()]

    def run(
        self, wanted: Filter | None = None, *, progress: Callable[[Trials], None] = lambda _: None
    ) -> Trials:
        """Try all letters that fit; `progress` is shown how it stands after each."""
        scan = self._letters.scan(wanted)
        own = own_modules(self._app)
        trials = Trials(scan.result, self.limits, show_sends=self._show_sends, own=own)
        for trial in self.trials(scan):
            trials.add(trial, self._seen(trial))
            progress(trials)
            if self._patience.is_over:
                trials.stopped = (
                    f"{trial.found.letter.place} and others before it did not end in time: no more"
                    " were tried. Find out why they hang, choose others (--group, --key, --at), or"
                    " give them more time (--timeout)"
                )
                break
        return trials

    def trials(self, found: Any) -> Iterator[Trial]:
        """Try letters one after the other."""
        scope = self._scope()
        try:
            for each in found:
                trial = self._in_time(each, scope)
                if trial.verdict == "not-ended":
                    _end(scope)
                    scope = self._scope()  # what hangs may still use that one
                yield trial
        finally:
            self._patience.close()

    def _in_time(self, found: Found, scope: Scope) -> Trial:
        handler = self._app.handlers.get(found.letter.origin_topic or "")
        seconds = self._seconds(handler)
        rest = 0.0 if handler is None else _rest(handler)
        try:
            return self._patience.call(
                lambda runner: self._fixed_and_tried(found, scope, runner, seconds), seconds, rest
            )
        except HandlerTimeout as error:
            return Trial(found, "not-ended", [], error)

    def _seconds(self, handler: Handler | None) -> float:
        """The shorter one of the times that handler and command give a letter."""
        own = None if handler is None or handler.timeout is None else handler.timeout / 1000
        return min(
            (each for each in (own, self._timeout) if each is not None), default=TRIAL_TIMEOUT
        )

    def _fixed_and_tried(
        self, found: Found, scope: Scope, runner: asyncio.Runner, seconds: float
    ) -> Trial:
        if self._fix is None or found.letter.origin_topic not in self._app.handlers:
            return self._try(found, found.letter, scope, runner, seconds)
        try:
            letter = _fixed(found.letter, self._fix, self._app)
        except FixError as error:
            return Trial(found, "fix-failed", [], error)
        return self._try(found, letter, scope, runner, seconds)._replace(fixed=letter)

    def _try(
        self, found: Found, letter: Letter, scope: Scope, runner: asyncio.Runner, seconds: float
    ) -> Trial:
        app = self._app
        handler = app.handlers.get(letter.origin_topic or "")
        if handler is None:
            return Trial(found, "no-handler", [])
        record = record_of(letter)
        assigned = Assigned(TopicPartition(record.topic, record.partition))
        work = Work(assigned, record, handler, 0, 0, _envelope(found, app))
        if self.limits:
            failure = invoke.decode(work)
            return Trial(found, "decoded" if failure is None else "fail", [], failure)
        return self._judged(found, call(work, scope, runner, seconds), scope.units)

    def _judged(self, found: Found, result: Result, units: object) -> Trial:
        if isinstance(units, RolledBack) and units.ended:
            return self._not_rolled_back(found, result)
        if isinstance(result, BaseException):
            return Trial(found, "fail", [], result)
        if isinstance(result, Pending):
            return Trial(found, "not-acknowledged", [])
        sends = result if isinstance(result, list) else []
        return Trial(found, "pass", sends)

    def _not_rolled_back(self, found: Found, result: Result) -> Trial:
        """Call no more handlers: the next one would do the same."""
        self.limits.append(
            f"all letters after {found.letter.place}. THE TRIAL OF THAT ONE MAY HAVE HAD EFFECTS:"
            " its handler ended the transaction of ctx.db itself (COMMIT, ROLLBACK or close()), and"
            " what it had committed could not be rolled back. Look at the database, and have the"
            " handler ask ctx.trying first"
        )
        error = result if isinstance(result, BaseException) else None
        return Trial(found, "not-rolled-back", [], error)

    def _scope(self) -> Scope:
        scope = Scope(self._app, {}, SimpleNamespace(**self._resources))
        scope.trying = True
        if self._app.guarantee.database and self._database is not None:
            scope.units = RolledBack(self._database)
        return scope

    def _seen(self, trial: Trial) -> See:
        """What may be seen of its letter; a decoder may be what hangs, and is not called again."""
        if trial.verdict != "not-ended":
            return self._letters.seen
        own = self._letters.masked
        masked = self._app.masked if own is None else own
        return lambda letter: Seen(letter, masked=masked)

    def _find_limits(self) -> Iterator[str]:
        missing = sorted(self._app.resources.keys() - self._resources.keys())
        unknown = sorted(self._resources.keys() - self._app.resources.keys())
        if unknown:
            raise ConfigurationError(f"the app has no resource {', '.join(unknown)}")
        if missing:
            yield (
                f"the app's resources {', '.join(missing)} are not opened for a trial: name what"
                " takes their place with --resources"
            )
        if self._app.guarantee.database and self._database is None:
            yield "ctx.db needs a database to roll back in: none is configured"
        if self._app.frame_handler is not None:
            yield "frame handlers are not called: they run on Spark"


def _fixed(letter: Letter, fix: Fix, app: App) -> Letter:
    """A letter with the value that the fix makes of it; FixError if it makes none."""
    record = letter.record._replace(value=fixed(fix, letter, app))
    return Letter(Record(*record), letter.dialect)


def _rest(handler: Handler) -> float:
    """The seconds that a call may take beyond those of its handler, until it counts as hanging."""
    cancelled = TRIAL_GRACE if handler.is_async else 0.0
    return cancelled + (patience_of(handler) if handler.ack == "manual" else 0.0)


def _end(scope: Scope) -> None:
    """End what a call that hangs has begun: others would wait for its locks."""
    if isinstance(scope.units, RolledBack):
        scope.units.end()


def _envelope(found: Found, app: App) -> envelopes.Envelope | None:
    try:
        before = envelopes.parse(found.letter.record.headers)
    except EnvelopeError:
        return None
    return replace(before, app=app.name, attempt=1, dead_reason=None)
