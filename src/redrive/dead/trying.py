"""Trying: runs the app's current code on letters, without effects, to see which would pass now.

Sends are collected and not written, `ctx.db` is rolled back, resources are those that are named for
it. Where that cannot be had, it stops after decoding, and says so. What a handler does behind
redrive's back, such as a call by a global client, is done: `ctx.trying` tells it not to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from redrive import envelope as envelopes
from redrive.coroutines import run_sync
from redrive.dead.fixing import Fix, FixError, fixed, record_of
from redrive.dead.rolled_back import RolledBack
from redrive.dead.scan import Found, Scanned
from redrive.errors import ConfigurationError, EnvelopeError
from redrive.processing.calls import invoke
from redrive.processing.calls.scope import Scope
from redrive.processing.work import Assigned, Pending, Work
from redrive.record import TopicPartition, Write

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.filters import Filter
    from redrive.dead.letters import DeadLetters
    from redrive.handler import Handler
    from redrive.processing.work import Result

Verdict = Literal["pass", "fail", "decoded", "no-handler", "fix-failed"]
"""`decoded`: it can be decoded now, and no more than that was tried."""


class Trial(NamedTuple):
    """What would come of one letter now."""

    found: Found
    verdict: Verdict
    sends: list[Write]
    error: BaseException | None = None


@dataclass
class GroupTrial:
    """What would come of the letters of one group."""

    group: str
    error_type: str | None
    verdicts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """How they would fail: by class."""
    sends: Counter[str] = field(default_factory=Counter)
    """Messages that would be sent, by topic."""

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "group": self.group,
            "error_type": self.error_type,
            "verdicts": dict(self.verdicts),
            "errors": dict(self.errors),
            "sends": dict(self.sends),
        }


@dataclass
class Trials:
    """What would come of all of them, by group."""

    scanned: Scanned
    limits: list[str]
    """Why handlers were not called, if they were not."""
    groups: dict[str, GroupTrial] = field(default_factory=dict)

    def add(self, trial: Trial) -> None:
        """Count one."""
        letter = trial.found.letter
        group = self.groups.setdefault(letter.group, GroupTrial(letter.group, letter.error_type))
        group.verdicts[trial.verdict] += 1
        if trial.error is not None:
            group.errors[type(trial.error).__name__] += 1
        for write in trial.sends:
            group.sends[write.topic] += 1

    @property
    def total(self) -> Counter[str]:
        """Verdicts of all groups."""
        return sum((each.verdicts for each in self.groups.values()), Counter())

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "total": dict(self.total),
            "limits": self.limits,
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
    ) -> None:
        if letters.app is None:
            raise ConfigurationError("`redrive dead try` needs an app: it runs its handlers")
        self._letters = letters
        self._app: App = letters.app
        self._fix = fix
        self._resources = dict(resources or {})
        self._database = database
        self.limits = [*self._find_limits()]

    def run(self, wanted: Filter | None = None) -> Trials:
        """Try all letters that fit."""
        scan = self._letters.scan(wanted)
        trials = Trials(scan.result, self.limits)
        for trial in self.trials(scan):
            trials.add(trial)
        return trials

    def trials(self, found: Any) -> Iterator[Trial]:
        """Try letters one after the other."""
        scope = self._scope()
        with asyncio.Runner() as runner:
            for each in found:
                yield self._try(each, scope, runner)

    def _try(self, found: Found, scope: Scope, runner: asyncio.Runner) -> Trial:
        letter, app = found.letter, self._app
        handler = app.handlers.get(letter.origin_topic or "")
        if handler is None:
            return Trial(found, "no-handler", [])
        record = record_of(letter)
        if self._fix is not None:
            try:
                record = type(record)(*record._replace(value=fixed(self._fix, letter, app)))
            except FixError as error:
                return Trial(found, "fix-failed", [], error)
        assigned = Assigned(TopicPartition(record.topic, record.partition))
        work = Work(assigned, record, handler, 0, 0, _envelope(found, app))
        if self.limits:
            failure = invoke.decode(work)
            return Trial(found, "decoded" if failure is None else "fail", [], failure)
        result = self._call(work, handler, scope, runner)
        if isinstance(result, BaseException):
            return Trial(found, "fail", [], result)
        sends = result if isinstance(result, list) else []
        return Trial(found, "pass", sends)

    def _call(self, work: Work, handler: Handler, scope: Scope, runner: asyncio.Runner) -> Result:
        said: list[Result] = []
        scope.acknowledge = lambda _work, _context, result: said.append(result)
        units = scope.units
        if handler.is_async:
            result = runner.run(_called_async(work, handler, scope))
        elif isinstance(units, RolledBack):
            result = units.around(lambda: _called(work, handler, scope))
        else:
            result = _called(work, handler, scope)
        if isinstance(result, Pending):
            return said[0] if said else None
        return result

    def _scope(self) -> Scope:
        scope = Scope(self._app, {}, SimpleNamespace(**self._resources))
        scope.trying = True
        if self._app.guarantee.database and self._database is not None:
            scope.units = RolledBack(self._database)
        return scope

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


def _envelope(found: Found, app: App) -> envelopes.Envelope | None:
    try:
        before = envelopes.parse(found.letter.record.headers)
    except EnvelopeError:
        return None
    return replace(before, app=app.name, attempt=1, dead_reason=None)


def _called(work: Work, handler: Handler, scope: Scope) -> Result:
    if handler.batch is None:
        return invoke.call_now(work, scope)
    return _only(run_sync(invoke.call_batch([work], scope, is_async=False)))


async def _called_async(work: Work, handler: Handler, scope: Scope) -> Result:
    async def call() -> Result:
        if handler.batch is None:
            return await invoke.call_async(work, scope)
        return _only(await invoke.call_batch([work], scope, is_async=True))

    units = scope.units
    return await (units.around_async(call) if isinstance(units, RolledBack) else call())


def _only(results: list[Result] | None) -> Result:
    assert results is not None, "one record: it is known which one failed"  # noqa: S101 -- by call_batch
    return results[0]
