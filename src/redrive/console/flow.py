"""Flow: how records move through an app's topics, from two looks at their offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from redrive.engines.ahead import Place
from redrive.record import TopicPartition

Kind = Literal["source", "delay", "dead", "outbound"]


class Spot(NamedTuple):
    """One partition at one time."""

    first: int
    end: int
    committed: int | None = None

    @property
    def lag(self) -> int:
        """Records that the app has not handled, at most: offsets have gaps."""
        return max(0, self.end - max(self.first, self.committed or 0))


@dataclass(frozen=True)
class Look:
    """What was seen at one time, in seconds of a clock that is never set."""

    at: float
    spots: Mapping[TopicPartition, Spot]


@dataclass(frozen=True)
class Node:
    """One topic of the app."""

    topic: str
    kind: Kind
    missing: bool = False
    records: int = 0
    """How many it has, at most."""
    lag: int = 0
    written: float | None = None
    """Per second, since the look before; None: not known yet."""
    handled: float | None = None
    delay: int = 0
    """Milliseconds that records of a delay topic wait."""
    due: int = 0
    due_since: int | None = None
    next_due: int | None = None
    oldest: int | None = None
    """When the oldest unhandled record was written, in milliseconds since 1970; of the dead topic,
    the oldest letter about which nobody has decided."""
    unread_since: int | None = None
    """Since when records wait and nobody was seen to handle any; None: nothing waits."""

    @property
    def waiting(self) -> int:
        """Records that could be handled now."""
        return self.due if self.kind == "delay" else self.lag


@dataclass(frozen=True)
class Flow:
    """All topics of an app, source topics first."""

    nodes: tuple[Node, ...] = ()
    trouble: str = ""
    """Why nothing newer is known."""
    at: int = 0
    """When it was seen, in milliseconds since 1970."""
    members: Mapping[str, int] | None = field(default_factory=dict)
    """Workers of the app's group, with how many partitions each has; None: not known."""
    quiet_since: int | None = None
    """When a run was last seen to work, or nobody had looked before; None: not known."""

    def of(self, kind: Kind) -> list[Node]:
        """The topics of one kind."""
        return [node for node in self.nodes if node.kind == kind]

    def lag(self) -> int:
        """Unhandled records of all source topics."""
        return sum(node.lag for node in self.of("source"))

    def parked(self) -> int:
        """Records that wait for another attempt."""
        return sum(node.lag for node in self.of("delay"))

    def dead(self) -> int:
        """Dead letters, at most."""
        return sum(node.records for node in self.of("dead"))

    def handled(self) -> float | None:
        """Records handled per second, of source and delay topics."""
        known = [node.handled for node in self.nodes if node.handled is not None]
        return sum(known) if known else None


def nodes(
    kinds: Mapping[str, Kind],
    now: Look,
    before: Look | None,
    *,
    delays: Mapping[str, int] | None = None,
    dues: Mapping[TopicPartition, Place] | None = None,
    oldest: Mapping[str, int] | None = None,
) -> tuple[Node, ...]:
    """The topics as they are now, in the order of `kinds`."""
    found = []
    for topic, kind in kinds.items():
        node = _node(topic, kind, now, before)
        due = [each for place, each in (dues or {}).items() if place.topic == topic]
        found.append(
            replace(
                node,
                delay=(delays or {}).get(topic, 0),
                due=sum(each.due for each in due),
                due_since=_least(each.due_since for each in due),
                next_due=_least(each.next_due for each in due),
                oldest=(oldest or {}).get(topic, _oldest_of(due, (delays or {}).get(topic, 0))),
            )
        )
    return tuple(found)


def _node(topic: str, kind: Kind, now: Look, before: Look | None) -> Node:
    """What offsets say of a topic."""
    spots = {place: spot for place, spot in now.spots.items() if place.topic == topic}
    is_read = kind in ("source", "delay")
    return Node(
        topic,
        kind,
        missing=not spots,
        records=sum(spot.end - spot.first for spot in spots.values()),
        lag=sum(spot.lag for spot in spots.values()) if is_read else 0,
        written=_rate(now, before, spots, "end"),
        handled=_rate(now, before, spots, "committed") if is_read else None,
    )


def _rate(
    now: Look,
    before: Look | None,
    spots: Mapping[TopicPartition, Spot],
    what: Literal["end", "committed"],
) -> float | None:
    """How quickly offsets have grown; a topic that was recreated has not shrunk."""
    if before is None or now.at <= before.at:
        return None
    grown = 0
    for place, spot in spots.items():
        was = before.spots.get(place)
        if was is not None:
            grown += max(0, (getattr(spot, what) or 0) - (getattr(was, what) or 0))
    return grown / (now.at - before.at)


def _oldest_of(places: Iterable[Place], delay: int) -> int | None:
    """When the oldest record of a delay topic was written, roughly: those are due in that order."""
    due = (each.due_since if each.due else each.next_due for each in places)
    first = _least(due)
    return None if first is None else first - delay


def _least(times: Iterable[int | None]) -> int | None:
    return min((each for each in times if each is not None), default=None)
