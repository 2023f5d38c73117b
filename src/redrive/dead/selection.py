"""Selection: which letters an operation is about, what it writes for them, whom it leaves out.

The same for a dry run, which only counts, and for the job itself: so a dry run's counts are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.dead.copies import Copy, LeftOut, Replay
from redrive.dead.fixing import Fix, FixError, difference, fixed
from redrive.dead.groups import Group, Groups
from redrive.dead.scan import Found, Scanned
from redrive.record import Write
from redrive.tuning import DEAD_DIFFERENCES

if TYPE_CHECKING:
    from redrive.dead.filters import Filter
    from redrive.dead.letters import DeadLetters
    from redrive.dead.state_topic import Known
    from redrive.ports import Clock


class Chosen(NamedTuple):
    """A letter, and what becomes of it."""

    found: Found
    copy: Copy


@dataclass
class Plan:
    """What a replay would do: a dry run."""

    letters: int = 0
    """How many would be driven again."""
    targets: Counter[str] = field(default_factory=Counter)
    """The topics that copies would go to."""
    left_out: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """For each reason to leave letters out: what was said of one of them."""
    groups: list[Group] = field(default_factory=list)
    changed: int = 0
    """How many values a fix changes."""
    differences: list[tuple[str, list[str]]] = field(default_factory=list)
    """What it changes, of the first few."""
    scanned: Scanned | None = None

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "letters": self.letters,
            "targets": dict(self.targets),
            "left_out": dict(self.left_out),
            "examples": self.examples,
            "groups": [each.as_data() for each in self.groups],
            "changed": self.changed,
            "differences": [{"letter": place, "lines": lines} for place, lines in self.differences],
            "scan": None if self.scanned is None else self.scanned.as_data(),
        }


@dataclass(frozen=True)
class Selection:
    """Which letters an operation is about, and what it writes for them."""

    letters: DeadLetters
    wanted: Filter
    clock: Clock
    replay: Replay | None = None
    """How letters are driven again; None: they are discarded."""
    again: bool = False
    """Also those that were driven again before."""
    fix: Fix | None = None

    def chosen(self, found: Iterable[Found]) -> Iterator[Chosen]:
        """What becomes of each letter."""
        for each in found:
            yield Chosen(each, self._copy(each))

    def plan(self, known: Known) -> Plan:
        """Count what would be done."""
        scan = self.letters.scan(self.wanted, known=known)
        plan, groups = Plan(scanned=scan.result), Groups()
        for found, copy in self.chosen(scan):
            if isinstance(copy, LeftOut):
                plan.left_out[copy.why] += 1
                plan.examples.setdefault(copy.why, copy.said)
                continue
            plan.letters += 1
            groups.add(found.letter, found.state)
            if copy is not None:
                plan.targets[copy.topic] += 1
                if self.fix is not None:
                    self._compare(plan, found, copy)
        plan.groups = groups.largest_first()
        return plan

    def _copy(self, found: Found) -> Copy:
        letter, state, _ = found
        if state == "replayed" and not self._means_replayed:
            return LeftOut("replayed-before")
        if state == "discarded" and (self.replay is None or "discarded" not in self.wanted.states):
            return LeftOut("discarded-before")
        if self.replay is None:
            return None
        value = letter.record.value
        if self.fix is not None:
            try:
                value = fixed(self.fix, letter, self.letters.app)
            except FixError as error:
                return LeftOut("fix-failed", str(error))
        return self.replay.copy(letter, value, self.clock.now())

    @property
    def _means_replayed(self) -> bool:
        """Whether letters that were driven again before are meant: only if somebody says so."""
        return self.again if self.replay is not None else "replayed" in self.wanted.states

    def _compare(self, plan: Plan, found: Found, copy: Write) -> None:
        before = found.letter.record.value
        if copy.value == before or copy.value is None:
            return
        plan.changed += 1
        if len(plan.differences) < DEAD_DIFFERENCES:
            masked = () if self.letters.app is None else self.letters.app.masked
            lines = [*difference(before, copy.value, masked)]
            plan.differences.append((found.letter.place, lines))
