"""A small world for the model of strict order: what is durable, an owner, and all that can happen.

The owner's decisions are those of the real `BlockedKeys`; everything around it is as simple as it
can be: one source partition, one delay topic, one topic of followers, no time. A record that was
parked may be due at any moment, a write may be durable at any moment, partitions are committed one
by one, and the owner may die, or be taken for dead, between any two of these steps.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from redrive.ports import Position
from redrive.processing.order.blocked_keys import BlockedKeys, Origin, Spot, Stage
from redrive.processing.progress import done_beyond
from redrive.record import TopicPartition

SOURCE = TopicPartition("orders", 0)
DELAY = TopicPartition("app.retry.5m", 0)
BEHIND = TopicPartition("app.retry.behind", 0)
ROOMS = (DELAY, BEHIND)
Stored = tuple[bytes, int, int]
"""A record in a room: its key, its offset in the source, its attempt."""
Step = tuple[object, ...]


class BrokenRuleError(AssertionError):
    """Something happened that must not."""


@dataclass
class Broker:
    """What is durable."""

    keys: tuple[bytes, ...]
    """The source: the key of each record."""
    rooms: dict[TopicPartition, list[Stored]] = field(
        default_factory=lambda: {DELAY: [], BEHIND: []}
    )
    done: dict[TopicPartition, frozenset[int]] = field(
        default_factory=lambda: {place: frozenset[int]() for place in (SOURCE, *ROOMS)}
    )
    """The offsets that are committed."""
    history: list[tuple[bytes, int]] = field(default_factory=list)
    """Handlers that succeeded, each record at its last place: a later success replaces it."""
    ended: set[int] = field(default_factory=set)

    def handled(self, key: bytes, offset: int) -> None:
        """A handler has succeeded: those before it must have done so before."""
        before = {one for one in range(offset) if self.keys[one] == key}
        if not before <= self.ended:
            raise BrokenRuleError(f"{key!r}@{offset} overtook {sorted(before - self.ended)}")
        self.ended.add(offset)
        self.history = [one for one in self.history if one != (key, offset)] + [(key, offset)]

    def check_end(self) -> None:
        """All was handled, and what was handled again was handled again in order."""
        if len(self.ended) != len(self.keys):
            raise BrokenRuleError(f"only {sorted(self.ended)} were handled")
        for key in set(self.keys):
            offsets = [offset for each, offset in self.history if each == key]
            if offsets != sorted(offsets):
                raise BrokenRuleError(f"the effects of {key!r} end in the order {offsets}")


class Owner:
    """Who has the partition: what it has read, decided and not yet made durable."""

    blocked_keys: type[BlockedKeys] = BlockedKeys

    def __init__(self, broker: Broker) -> None:
        done = broker.done
        self.read = {place: _prefix(done[place]) for place in (SOURCE, *ROOMS)}
        self.complete = {place: set(done[place]) for place in (SOURCE, *ROOMS)}
        self.running: set[int] = set()
        """Of the source: read, and not complete."""
        self.lanes: dict[bytes, list[int]] = {}
        self.here: set[Spot] = set()
        """Copies that were read and kept."""
        self.writes: list[tuple[TopicPartition, Stored, TopicPartition, int]] = []
        """What is to be written, and what is complete then."""
        self.acks: dict[TopicPartition, frozenset[int]] = {}
        """Commits that are durable, without this owner knowing it."""
        self.blocked = self.blocked_keys(read_to=self.read[SOURCE], known_end=len(broker.keys))
        self.blocked.is_under_way = self.is_running
        for room in ROOMS:
            for offset, (key, origin, attempt) in enumerate(broker.rooms[room]):
                if offset not in done[room]:
                    self.blocked.found(Spot(room, offset), key, Origin(origin), Stage(attempt))

    def is_running(self, offset: int) -> bool:
        return offset in self.running

    # What it can do

    def steps(self, broker: Broker) -> Iterator[Step]:
        if self.read[SOURCE] < len(broker.keys):
            yield ("read",)
        for key in sorted(self.lanes):
            yield ("run-fresh", key)
        for spot in sorted(self.here):
            if self.blocked.may_run(spot) and self._may_begin(broker, spot):
                yield ("run-parked", spot)
        for room in {write[0] for write in self.writes}:
            yield ("write", room)
        for place in (SOURCE, *ROOMS):
            if place not in self.acks and self.complete[place] - broker.done[place]:
                yield ("commit", place)
        for place in sorted(self.acks):
            yield ("ack", place)

    def _may_begin(self, broker: Broker, spot: Spot) -> bool:
        """Whether its lane is free, and nobody is before it there."""
        key = broker.rooms[spot.room][spot.offset][0]
        before = (one for one in self.here if one.room == spot.room and one.offset < spot.offset)
        return key not in self.lanes and not any(
            broker.rooms[one.room][one.offset][0] == key and self.blocked.may_run(one)
            for one in before
        )

    def _look(self) -> None:
        while self.blocked.changed:
            self.blocked.ready(self.blocked.changed.pop())
        for spot in sorted(self.here):
            if self.blocked.is_copy(spot):
                self.blocked.drops(spot)
                self.here.discard(spot)
                self.complete[spot.room].add(spot.offset)

    def take(self, step: Step, broker: Broker, *, fails: bool) -> None:
        match step:
            case ("read",):
                self._read_source(broker)
            case ("run-fresh", bytes() as key):
                self.run_fresh(key, broker, fails=fails)
            case ("run-parked", Spot() as spot):
                self.run_parked(spot, broker, fails=fails)
            case ("write", TopicPartition() as room):
                first = next(write for write in self.writes if write[0] == room)
                self.writes.remove(first)
                _, stored, place, offset = first
                broker.rooms[room].append(stored)
                self._complete(place, offset)
            case ("commit", TopicPartition() as place):
                broker.done[place] |= self.complete[place]
                self.acks[place] = broker.done[place]
            case ("ack", TopicPartition() as place):
                self.blocked.committed(place, _position(self.acks.pop(place)))

    def look(self, broker: Broker) -> None:
        """Read what is in the rooms, at once: reading later is as if it were written later."""
        for room in ROOMS:
            while self.read[room] < len(broker.rooms[room]):
                self._read_room(room, broker)
        self._look()

    def _read_source(self, broker: Broker) -> None:
        offset = self.read[SOURCE]
        self.read[SOURCE] += 1
        if offset not in broker.done[SOURCE]:
            self.running.add(offset)
            self.take_in(broker.keys[offset], offset)
        self.blocked.source_read(offset + 1)

    def take_in(self, key: bytes, offset: int) -> None:
        match self.blocked.fresh(key, Spot(SOURCE, offset)):
            case "run":
                self.lanes.setdefault(key, []).append(offset)
            case "copy":
                self._complete(SOURCE, offset)
            case "behind":
                self.blocked.leaves(key, Origin(offset), Stage(1), Spot(SOURCE, offset))
                self.writes.append((BEHIND, (key, offset, 1), SOURCE, offset))
            case "wait":
                raise BrokenRuleError("there is room for all of them")

    def _read_room(self, room: TopicPartition, broker: Broker) -> None:
        offset = self.read[room]
        self.read[room] += 1
        if offset in broker.done[room] or offset in self.complete[room]:
            return
        key, origin, attempt = broker.rooms[room][offset]
        spot = Spot(room, offset)
        if self.blocked.arrives(spot, key, Origin(origin), Stage(attempt)):
            self.here.add(spot)
        else:
            self.complete[room].add(offset)
        if key in self.lanes:  # those that have not begun go behind it
            waiting = self.lanes.pop(key)
            for each in waiting:
                self.take_in(key, each)

    def run_fresh(self, key: bytes, broker: Broker, *, fails: bool) -> None:
        offset, *rest = self.lanes.pop(key)
        if not fails:
            broker.handled(key, offset)
            self._complete(SOURCE, offset)
            if rest:
                self.lanes[key] = rest
            return
        self.blocked.leaves(key, Origin(offset), Stage(2), Spot(SOURCE, offset))
        self.writes.append((DELAY, (key, offset, 2), SOURCE, offset))
        for each in rest:
            self.take_in(key, each)

    def run_parked(self, spot: Spot, broker: Broker, *, fails: bool) -> None:
        key, origin, attempt = broker.rooms[spot.room][spot.offset]
        self.here.discard(spot)
        if not fails:
            broker.handled(key, origin)
            self.blocked.ends(spot)
            self.complete[spot.room].add(spot.offset)
            return
        self.blocked.leaves(key, Origin(origin), Stage(attempt + 1), spot)
        self.writes.append((DELAY, (key, origin, attempt + 1), spot.room, spot.offset))

    def _complete(self, place: TopicPartition, offset: int) -> None:
        self.complete[place].add(offset)
        if place == SOURCE:
            self.running.discard(offset)


@dataclass
class World:
    """All of it, at one moment."""

    broker: Broker
    owner: Owner
    failures: int
    """How many handlers may still fail."""
    crashes: int
    zombies: int
    late: list[tuple[TopicPartition, Stored]] = field(default_factory=list)
    """What one that was taken for dead has yet to write."""

    def steps(self) -> Iterator[Step]:
        for step in self.owner.steps(self.broker):
            yield (*step, False)
            if self.failures and step[0] in ("run-fresh", "run-parked"):
                yield (*step, True)
        for room in {write[0] for write in self.late}:
            yield ("late", room, False)
        if self.crashes:
            yield ("crash", False)
        # After a zombie nobody dies: what comes of both is said in the decision on strict order.
        if self.zombies and self.owner.writes:
            yield ("zombie", False)

    def take(self, step: Step) -> None:
        what, fails = step[:-1], bool(step[-1])
        if what == ("crash",):
            self.crashes -= 1
            self.owner = type(self.owner)(self.broker)
        elif what == ("zombie",):
            self.zombies, self.crashes = 0, 0
            self.late = [(room, stored) for room, stored, _, _ in self.owner.writes]
            self.owner = type(self.owner)(self.broker)
        elif what[0] == "late":
            first = next(write for write in self.late if write[0] == what[1])
            self.late.remove(first)
            self.broker.rooms[first[0]].append(first[1])
        else:
            self.failures -= fails
            self.owner.take(what, self.broker, fails=fails)
        self.owner.look(self.broker)

    def check_end(self) -> None:
        """Nothing can happen any more: all is handled, and nothing is blocked."""
        self.broker.check_end()
        if self.owner.blocked:
            raise BrokenRuleError("a key is blocked for ever")


def explore(world: World, most: int = 1_000_000) -> int:
    """Try everything that can happen; how many worlds there are. A broken rule is raised."""
    seen: set[object] = set()
    waiting: list[tuple[bytes, tuple[Step, ...]]] = [(pickle.dumps(world, -1), ())]
    while waiting:
        frozen, path = waiting.pop()
        here = pickle.loads(frozen)  # noqa: S301 -- made here
        steps = list(here.steps())
        if all(step[0] in ("crash", "zombie") for step in steps):
            _checked(here.check_end, path)
        for step in steps:
            after = pickle.loads(frozen)  # noqa: S301 -- made here
            _checked(lambda: after.take(step), (*path, step))  # noqa: B023 -- called at once
            looks = hash(_shape(after))
            if looks not in seen:
                seen.add(looks)
                assert len(seen) < most, "there are too many worlds: is one of them growing?"
                waiting.append((pickle.dumps(after, -1), (*path, step)))
    return len(seen)


def _shape(thing: object) -> object:
    """What makes a world: two of the same shape go on in the same way."""
    kind = type(thing)
    if kind is dict:
        return frozenset([(key, _shape(value)) for key, value in thing.items()])  # type: ignore[attr-defined]  # -- it is one
    if kind is set:
        return frozenset(thing)  # type: ignore[call-overload]  # -- it is one
    if kind is list:
        return tuple(map(_shape, thing))  # type: ignore[call-overload]  # -- it is one
    if isinstance(thing, Broker | Owner | World | BlockedKeys):
        return tuple([_shape(value) for value in vars(thing).values()])
    names = getattr(kind, "__slots__", None)
    if names and not isinstance(thing, tuple):
        return tuple([_shape(getattr(thing, name)) for name in names])
    return None if callable(thing) else thing


def _checked(what: Callable[[], None], path: tuple[Step, ...]) -> None:
    try:
        what()
    except BrokenRuleError as broken:
        raise BrokenRuleError(f"{broken}, after:\n" + "\n".join(map(str, path))) from None


def _prefix(done: frozenset[int]) -> int:
    offset = 0
    while offset in done:
        offset += 1
    return offset


def _position(done: frozenset[int]) -> Position:
    offset = _prefix(done)
    beyond = sorted(one for one in done if one > offset)
    return Position(offset, done_beyond.encode_offsets(offset, beyond))
