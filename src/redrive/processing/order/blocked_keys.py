"""BlockedKeys: what of one source partition waits in its rooms, and which of it may run next.

The heart of `ordering="strict"`; docs/decisions/strict-order.md says why each rule is as it is.

A record that waits is known by its place in the source (its origin), wherever copies of it are: in
a delay topic, or in the topic of followers. A key is blocked as long as something of it waits, or
has ended without its end being known to be committed. Nothing here is durable: a new owner of the
partition derives all of it from the uncommitted part of the rooms.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.record import TopicPartition
from redrive.tuning import FOLLOWERS_LET_GO, MAX_BEHIND

Fresh = Literal["run", "behind", "wait", "copy"]
"""What a record that was read from the source does: it runs, goes behind those of its key that
wait, has to wait until there is room behind them, or is one that waits there already."""


class Origin(NamedTuple):
    """Which record it is: its offset in the source, and by which operation it was driven again.

    And when it was written: in a topic that was deleted and made again, another has its offset.
    """

    offset: int
    operation: str = ""
    timestamp: int = 0


class Spot(NamedTuple):
    """Where a copy of a waiting record is."""

    room: TopicPartition
    offset: int


class Stage(NamedTuple):
    """How far a record had come when a copy was written; of two copies the later one counts."""

    attempt: int
    due: int = 0


class _Entry:
    """One record that waits."""

    __slots__ = ("copies", "expected", "held")

    def __init__(self) -> None:
        self.copies: dict[Spot, Stage] = {}
        self.expected: Stage | None = None
        """The copy that is being written."""
        self.held = False
        """Whether it is a dead letter that its key waits for."""

    @property
    def spot(self) -> Spot | None:
        """The copy that counts; None while a later one is being written."""
        if self.expected is not None or not self.copies:
            return None
        return max(self.copies, key=self.copies.__getitem__)


class _Key:
    """All that is known of one blocked key."""

    __slots__ = ("entries", "last", "left", "let_go", "order", "unlike")

    def __init__(self) -> None:
        self.entries: dict[Origin, _Entry] = {}
        self.order: list[Origin] = []
        """The same, ascending."""
        self.let_go: dict[Origin, Spot] = {}
        """Those that may run, and from where."""
        self.left: dict[Spot, Origin | None] = {}
        """Where its records were that is not known to be committed; None: they ran from there to
        their end, one after the other, in one room."""
        self.unlike: list[Origin] = []
        """The origins of those that are not of that kind, ascending."""
        self.last: Spot | None = None
        """The last of those that are."""


class BlockedKeys:
    """The blocked keys of one source partition. Not for use from several threads at once."""

    def __init__(
        self,
        *,
        read_to: int = 0,
        known_end: int = 0,
        max_behind: int = MAX_BEHIND,
        ahead: int = FOLLOWERS_LET_GO,
    ) -> None:
        """`read_to` is where reading of the source begins, `known_end` its end at this moment.

        `ahead` is how many followers of one key are let go at once.
        """
        self.is_under_way: Callable[[int], bool] = _nothing
        """Says of a source offset that its record was read here, and is not complete."""
        self.read_to = read_to
        """The source was read up to here: all before it is known."""
        self._known_end = known_end
        self._max_behind = max_behind
        self._ahead = ahead
        self._keys: dict[bytes, _Key] = {}
        self._at: dict[Spot, tuple[bytes, Origin]] = {}
        self._left: dict[TopicPartition, dict[int, bytes]] = {}
        self._catching_up: dict[bytes, int] = {}
        """Keys that wait until the source is read past an offset."""
        self.changed: set[bytes] = set()
        """Keys of which something may be ready: whoever looks takes them out."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def behind(self, key: bytes) -> int:
        """How many records of a key wait."""
        found = self._keys.get(key)
        return 0 if found is None else len(found.order)

    def most_behind(self) -> tuple[bytes, int] | None:
        """The key of which most waits, and how much."""
        if not self._keys:
            return None
        key = max(self._keys, key=self.behind)
        return key, self.behind(key)

    @property
    def waiting(self) -> int:
        """How many records wait, of all keys."""
        return sum(len(each.order) for each in self._keys.values())

    # The source

    def fresh(self, key: bytes, spot: Spot, timestamp: int = 0) -> Fresh:
        """What a record does that was read there, in the source."""
        found = self._keys.get(key)
        if found is None:
            return "run"
        origin = Origin(spot.offset, "", timestamp)
        if origin in found.entries:
            self._leave(key, found, spot, origin)
            return "copy"
        # The bound is for those at the end: one that stands before others holds these up.
        first = bool(found.order) and origin < found.order[-1]
        return "behind" if first or len(found.order) < self._max_behind else "wait"

    def source_read(self, end: int) -> None:
        """Note that the source was read up to there."""
        if end <= self.read_to:
            return
        self.read_to = end
        for key, offset in list(self._catching_up.items()):
            if offset < end or end >= self._known_end:
                del self._catching_up[key]
                self.changed.add(key)

    # Copies in rooms

    def leaves(self, key: bytes, origin: Origin, stage: Stage, spot: Spot) -> None:
        """A copy is about to be written, of a record that was read there: in a room or the source.

        Those that were let go behind it have to wait again.
        """
        found, entry = self._entry(key, origin)
        entry.expected = None if stage in entry.copies.values() else stage
        found.let_go.pop(origin, None)
        entry.copies.pop(spot, None)
        self._leave(key, found, spot, origin)
        _take_back(found, origin)

    def arrives(self, spot: Spot, key: bytes, origin: Origin, stage: Stage) -> bool:
        """A copy was read in a room; False: it is one too many, and is dropped."""
        if spot in self._at:
            if not self.is_copy(spot):
                return True
            self.drops(spot)
            return False
        found = self._keys.get(key)
        if found is None or origin not in found.entries:
            if self._is_over(origin) or (found is not None and spot in found.left):
                self._leave(key, self._keys.setdefault(key, _Key()), spot, origin)
                return False
            if not origin.operation and origin.offset >= self.read_to:
                self._known_end = max(self._known_end, origin.offset + 1)
        self._add(spot, key, origin, stage)
        return True

    def found(self, spot: Spot, key: bytes, origin: Origin, stage: Stage) -> None:
        """A copy was found in the uncommitted part of a room, by a new owner."""
        self._add(spot, key, origin, stage)

    def is_copy(self, spot: Spot) -> bool:
        """Whether what was read there is one too many: a later copy of it counts, or it is over."""
        at = self._at.get(spot)
        if at is None:
            return True
        entry = self._keys[at[0]].entries[at[1]]
        return entry.expected is None and entry.spot != spot

    def knows(self, spot: Spot) -> bool:
        """Whether what was read there waits, or is on its way."""
        return spot in self._at

    def waiting_in(self, room: TopicPartition) -> set[int]:
        """The offsets in a room of what waits there; not of what is one too many."""
        here = (spot for spot in self._at if spot.room == room)
        return {spot.offset for spot in here if not self.is_copy(spot)}

    def copies_beside(self, spot: Spot) -> list[Spot]:
        """Other copies of what was read there."""
        at = self._at.get(spot)
        copies = () if at is None else self._keys[at[0]].entries[at[1]].copies
        return [each for each in copies if each != spot]

    def ends(self, spot: Spot) -> bytes | None:
        """The record that was read there has come to its end: nothing of it waits any more.

        Returns its key; None: nothing was known of it.
        """
        at = self._at.get(spot)
        if at is None:
            return None
        key, origin = at
        found = self._keys[key]
        entry = found.entries.pop(origin)
        found.let_go.pop(origin, None)
        del found.order[bisect_left(found.order, origin)]
        for copy in entry.copies:
            self._leave(key, found, copy, origin, ran=copy == spot)
        return key

    def drops(self, spot: Spot) -> None:
        """What was read there is one too many, and was dropped: its record waits elsewhere."""
        at = self._at.get(spot)
        if at is None:
            return
        key, origin = at
        found = self._keys[key]
        entry = found.entries[origin]
        del entry.copies[spot]
        if found.let_go.get(origin) == spot:
            del found.let_go[origin]
        self._leave(key, found, spot, origin)

    # Dead letters

    def holds(self, key: bytes, origin: Origin) -> None:
        """The record is dead, and its key waits for it: for its replay, or until it is let go."""
        entry = self._entry(key, origin)[1]
        entry.held = True

    def lets_go(self, key: bytes, origin: Origin) -> None:
        """The key waits no longer for its dead letter."""
        found = self._keys.get(key)
        entry = None if found is None else found.entries.get(origin)
        if found is None or entry is None or not entry.held:
            return
        for spot in list(entry.copies):
            self.ends(spot)

    # What may run

    def ready(self, key: bytes, busy: Collection[TopicPartition] = ()) -> list[Spot]:
        """Let those of a key go that may run now, in their order; returns those that are new.

        Where it is `busy`, records of the key run or wait to: in one room they run one after the
        other, but those of two rooms would run side by side.
        """
        found = self._keys.get(key)
        if found is None:
            return []
        new: list[Spot] = []
        last: Spot | None = None
        for origin in found.order[: self._ahead]:
            entry = found.entries[origin]
            spot = entry.spot
            if spot is None or entry.held or not self._caught_up(key, origin):
                break
            if not _in_line(found, origin, spot, last) or any(room != spot.room for room in busy):
                break
            if origin not in found.let_go:
                found.let_go[origin] = spot
                new.append(spot)
            elif found.let_go[origin] != spot:
                break
            last = spot
        return new

    def may_run(self, spot: Spot) -> bool:
        """Whether what was read there has been let go."""
        at = self._at.get(spot)
        return at is not None and self._keys[at[0]].let_go.get(at[1]) == spot

    def committed(self, room: TopicPartition, position: Position) -> None:
        """Note what is committed in a room, or in the source."""
        left = self._left.get(room)
        if not left:
            return
        done = done_beyond.decode(position)
        gone = [
            offset
            for offset in left
            if offset < position.offset or done_beyond.includes(done, offset)
        ]
        for offset in gone:
            self._forget(left.pop(offset), Spot(room, offset))

    # How it is kept

    def _entry(self, key: bytes, origin: Origin) -> tuple[_Key, _Entry]:
        found = self._keys.setdefault(key, _Key())
        entry = found.entries.get(origin)
        if entry is None:
            entry = found.entries[origin] = _Entry()
            insort(found.order, origin)
        return found, entry

    def _add(self, spot: Spot, key: bytes, origin: Origin, stage: Stage) -> None:
        found, entry = self._entry(key, origin)
        _take_back(found, origin)
        entry.copies[spot] = stage
        self._at[spot] = key, origin
        if entry.expected is not None and stage >= entry.expected:
            entry.expected = None
        if origin.operation:
            self.lets_go(key, origin._replace(operation=""))
        self.changed.add(key)

    def _is_over(self, origin: Origin) -> bool:
        """Whether a record of which nothing waits has come to its end: whoever copies it is late.

        One that is under way here may have been written before anybody has said so.
        """
        known = origin.offset < self.read_to and not origin.operation
        return known and not self.is_under_way(origin.offset)

    def _leave(
        self, key: bytes, found: _Key, spot: Spot, origin: Origin, *, ran: bool = False
    ) -> None:
        self.changed.add(key)
        if spot in found.left:
            return
        if ran and (found.last is None or found.last.room == spot.room):
            found.left[spot] = None
            found.last = spot
        else:
            found.left[spot] = origin
            insort(found.unlike, origin)
        self._left.setdefault(spot.room, {})[spot.offset] = key
        self._at.pop(spot, None)

    def _forget(self, key: bytes, spot: Spot) -> None:
        found = self._keys[key]
        origin = found.left.pop(spot)
        if origin is not None:
            del found.unlike[bisect_left(found.unlike, origin)]
        self.changed.add(key)
        if not found.left:
            found.last = None
            if not found.order:
                del self._keys[key]

    def _caught_up(self, key: bytes, origin: Origin) -> bool:
        """Whether the source was read past a record: those before it may have to run again."""
        # One beyond the known end is of a topic that had the same name before.
        if origin.offset < self.read_to or not self.read_to <= origin.offset < self._known_end:
            return True
        self._catching_up[key] = origin.offset
        return False


def _nothing(_: int) -> bool:
    return False


def _take_back(found: _Key, origin: Origin) -> None:
    """Have those wait again that were let go and come after it."""
    if found.order[-1] > origin:
        found.let_go = {each: spot for each, spot in found.let_go.items() if each <= origin}


def _in_line(found: _Key, origin: Origin, spot: Spot, last: Spot | None) -> bool:
    """Whether all before it is committed whenever its own end is.

    What is left of it, and of those before it, in other rooms or in the source has to be committed
    first: two partitions are not committed as one. In its own room it is enough that they ran
    before it, and stand before it.
    """
    if found.unlike and found.unlike[0] <= origin:
        return False
    before = last or found.last
    return before is None or (before.room == spot.room and before.offset < spot.offset)
