"""Plan: what a rewind would do, counted exactly; nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redrive.dead.copies import WHY, Why
from redrive.numbers import counted

if TYPE_CHECKING:
    from redrive.rewind.old_records import Old
    from redrive.rewind.targets import Span


def why_not(
    old: Old, *, as_copies: bool, forget: bool, no_topic: Collection[str] = ()
) -> Why | None:
    """Why a record would not be handled again; None: it would be.

    `no_topic` are the source topics for whose copies there is no topic.
    """
    if old.work is None:
        return "broken-headers"
    if as_copies and old.written_back:
        return "written-back"
    standing, own = old.stands
    if standing != "new" and not (forget and own is not None):
        return standing
    return "no-topic" if old.record.topic in no_topic else None


@dataclass
class RewindPlan:
    """What a rewind would do: a dry run."""

    spans: list[Span]
    notes: list[str] = field(default_factory=list)
    """What should be known of where it goes back to."""
    keys: tuple[str, ...] = ()
    """Only records with these keys; none: all."""
    forget: bool = False
    no_topic: Collection[str] = ()
    """With keys: the source topics for whose copies there is no topic."""
    records: int = 0
    """Records in range that the app has handled; with keys, those that have one of them."""
    handled: int = 0
    """How many of them would be handled again."""
    done: int = 0
    """How many the inbox knows as done by themselves: it is these that --forget means."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Those that would not be handled again, by reason."""
    parked: int = 0
    """Records in range that wait in a delay topic now, of an app without an inbox."""
    in_the_way: str = ""
    """Who has to be stopped first."""

    def add(self, old: Old) -> None:
        """Count a record."""
        self.records += 1
        why = why_not(old, as_copies=bool(self.keys), forget=self.forget, no_topic=self.no_topic)
        self.done += old.stands.own is not None and why in (None, "done")
        if why is None:
            self.handled += 1
        else:
            self.left_out[why] += 1

    def sentences(self) -> Iterator[str]:
        """What would be done, for people."""
        for place, start, (now, _) in self.spans:
            yield f"{place}: from offset {start:,} on; the app is at {now:,}"
        yield from self.notes
        yield f"{counted(self.records, 'record')}{self._with_keys()}{self._with_inbox()}"
        for why, count in self.left_out.items():
            if why != "done":
                yield f"{count:,} would not be handled, as they {WHY[why]}"
        if self.parked:
            yield (
                f"{self.parked:,} wait for another attempt in delay topics: these would be handled"
                " from there as well"
            )
        if self.in_the_way:
            yield self.in_the_way

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "partitions": [
                {"place": str(place), "from": start, "at": now}
                for place, start, (now, _) in self.spans
            ],
            "keys": list(self.keys),
            "forget": self.forget,
            "records": self.records,
            "handled": self.handled,
            "done": self.done,
            "left_out": dict(self.left_out),
            "parked": self.parked,
            "notes": self.notes,
            "in_the_way": self.in_the_way,
        }

    def _with_keys(self) -> str:
        if not self.keys:
            return ""
        return f" with the key{'s' if len(self.keys) > 1 else ''} {', '.join(self.keys)}"

    def _with_inbox(self) -> str:
        if self.forget and self.done:
            return f"; {self.done:,} of them were handled: the inbox would forget that first"
        if not self.left_out["done"]:
            return ""
        return (
            f"; {self.left_out['done']:,} of them {WHY['done']}: --forget makes them be handled"
            " again"
        )
