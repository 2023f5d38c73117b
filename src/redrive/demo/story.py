"""What happens in the shop and how it is reported, independent of the engine that runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from redrive.envelope import Envelope
from redrive.record import Record


@dataclass(frozen=True)
class Event:
    """A record that somebody writes to a source topic."""

    at: str
    """How long after the beginning."""
    verb: Literal["create", "update"]
    item: str
    value: bytes
    note: str = ""

    @property
    def topic(self) -> str:
        """The source topic."""
        return f"item.{self.verb}"


def _create(at: str, item: str, note: str = "") -> Event:
    return Event(at, "create", item, json.dumps({"id": item}).encode(), note)


def _update(at: str, item: str, status: str, note: str = "") -> Event:
    return Event(at, "update", item, json.dumps({"id": item, "status": status}).encode(), note)


EVENTS: Final = (
    _create("0s", "chair"),
    _update("0s", "ghost", "SOLD", "its create will never come"),
    _update("1m", "lamp", "SOLD", "its create is late"),
    _update("1m", "chair", "SOLD"),
    Event("2m", "update", "desk", b'{"id": "desk", "stat', "cut off by its sender"),
    _create("3m", "lamp", "the one that the update of lamp waits for"),
    _create("4m", "vase"),
    _update("4m", "vase", "SOLD"),
    _create("45m", "sofa"),
    _update("45m", "sofa", "RESERVED"),
    _update("2h", "sofa", "SOLD"),
)


@dataclass(frozen=True)
class Step:
    """What became of a record at one moment. Times are milliseconds after the beginning."""

    at: int
    record: str
    attempt: int
    kind: Literal["handled", "parked", "buried"]
    topic: str = ""
    """Where it was parked or buried."""
    due: int = 0
    reason: str = ""
    error: str = ""


@dataclass(frozen=True)
class Telling:
    """The story as it went."""

    steps: Sequence[Step]
    """In the order of time."""
    counts: Mapping[str, int]
    """How many records were written to each topic."""
    dead: Sequence[tuple[Record, Envelope]]
    parked: int
    """How many still wait."""
    lasted: int
    """Milliseconds, in the time of the story."""
    took: float
    """Seconds, in ours."""

    @property
    def handled(self) -> int:
        """How many records were handled."""
        return sum(step.kind == "handled" for step in self.steps)

    @property
    def lost(self) -> int:
        """How many records were written to a source topic and are nowhere to be found."""
        return len(EVENTS) - self.handled - len(self.dead) - self.parked

    @property
    def intact(self) -> bool:
        """Whether the dead records have the bytes that were sent."""
        sent = {(event.topic, event.item.encode(), event.value) for event in EVENTS}
        return all((record.topic, record.key, record.value) in sent for record, _ in self.dead)


def name_of(record: Record) -> str:
    """The record's name in the story: `update lamp`."""
    return f"{record.topic.removeprefix('item.')} {(record.key or b'').decode()}"
