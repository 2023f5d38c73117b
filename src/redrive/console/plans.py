"""Plans: dry runs and trials that the page asked for, each in a thread, until they are looked at.

They read as many letters as there are: no request waits for that.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Literal

from redrive.console.forms import Fields, query_of
from redrive.dead import Filter, ReplayOptions, ReplayPlan
from redrive.dead.trying import Trials
from redrive.errors import RedriveError
from redrive.threads import begin

Action = Literal["replay", "discard", "try"]
_KEPT: Final = 50
_AT_ONCE: Final = 4


@dataclass(frozen=True)
class Asked:
    """What somebody wants to be done, and what would come of it."""

    id: str
    action: Action
    wanted: Filter
    options: ReplayOptions
    by: str
    fields: Fields
    """The filter, as a form has it."""
    end: Future[ReplayPlan | Trials] = field(repr=False)
    _jobs: list[str] = field(default_factory=list, init=False)
    _taking: Lock = field(default_factory=Lock, init=False, repr=False)

    @property
    def query(self) -> str:
        """The filter, for links back."""
        return query_of(self.fields)

    @property
    def plan(self) -> ReplayPlan | Trials | None:
        """What would be done; None: it is not known yet, or it failed."""
        return self.end.result() if self.end.done() and self.end.exception() is None else None

    @property
    def problem(self) -> str:
        """Why it is not known."""
        error = self.end.exception() if self.end.done() else None
        if error is None:
            return ""
        return str(error) if isinstance(error, RedriveError) else repr(error)

    def taken(self, start: Callable[[], str]) -> str:
        """The job that does it: begun by whoever confirms it first, and not a second time."""
        with self._taking:
            if not self._jobs:
                self._jobs.append(start())
            return self._jobs[0]


class Plans:
    """The last plans of one app."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked: OrderedDict[str, Asked] = OrderedDict()

    def begin(
        self,
        action: Action,
        run: Callable[[], ReplayPlan | Trials],
        *,
        wanted: Filter,
        options: ReplayOptions,
        by: str,
        fields: Fields,
    ) -> Asked:
        """Find out what would be done."""
        with self._lock:
            # Trials run code of the app, which may hang: they are not in the way of plans.
            same = (
                each for each in self._asked.values() if (each.action == "try") == (action == "try")
            )
            if sum(not each.end.done() for each in same) >= _AT_ONCE:
                raise RedriveError("several plans are being made already: wait for them")
            end = begin(run, name=f"redrive-console-{action}")
            asked = Asked(secrets.token_hex(8), action, wanted, options, by, fields, end)
            self._asked[asked.id] = asked
            while len(self._asked) > _KEPT:
                self._asked.popitem(last=False)
        return asked

    def get(self, name: str) -> Asked | None:
        """The plan of that id, if it is still known."""
        return self._asked.get(name)
