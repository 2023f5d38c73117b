"""KeyGate: lets records of blocked keys pass in the order of their offsets in the source.

One for each source partition of an app with `ordering="strict"`, shared by the processors of the
partition and of its rooms: the partitions of the delay topics, and of the topic of followers, that
have its number. What may run is decided by `BlockedKeys`; here it is carried out on lanes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from redrive.processing.order.blocked_keys import BlockedKeys, Fresh, Origin, Spot, Stage
from redrive.processing.outcomes.park_and_bury import behind
from redrive.processing.outcomes.report import Outcome, Report, Subject
from redrive.processing.progress import done_beyond
from redrive.tuning import FOLLOWERS_AT_HAND

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.envelope import Envelope
    from redrive.ports import Position
    from redrive.processing.order.given_back import GivenBack
    from redrive.processing.order.lanes import Lanes
    from redrive.processing.progress.acks import AckTracker
    from redrive.processing.work import Lane, Work
    from redrive.record import Record, TopicPartition

log: Final = logging.getLogger("redrive.processing")
_MOVES: Final = ("park", "hop")
_COPY: Final = "a copy of it waits, or is done"


@dataclass(frozen=True, eq=False)
class Station:
    """What the gate needs of one partition's processor."""

    lanes: Lanes
    tracker: AckTracker
    given_back: GivenBack
    spread: Callable[[int, Report], None]
    """Has all fresh records go by lanes."""
    envelope_of: Callable[[Work], Envelope]


class KeyGate:
    """The gate of one source partition. Whoever uses it holds the dispatcher's lock."""

    def __init__(
        self, app: App, source: TopicPartition, keys: BlockedKeys, *, max_in_flight: int
    ) -> None:
        """`max_in_flight` is how many records of one room are in flight before it is paused."""
        self._app = app
        # Far fewer: a room that is full of what waits would not be read any more, and what all of
        # it waits for may stand further on in the same room.
        self._most_at_hand = max_in_flight // 4
        self._source = source
        self.keys = keys
        self._stations: dict[TopicPartition, Station] = {}
        self._held: dict[bytes, dict[Spot, Work]] = {}
        """Records of rooms that could run, but for their key."""
        self._at_hand: dict[TopicPartition, int] = {}
        """How many of them each room has."""
        self._unread: set[Spot] = set()
        """Those that were read and put off: they are read again when they may run."""
        self._let_go: dict[bytes, deque[Spot]] = {}
        """Those that may run, and are not in their lane yet; in order."""
        self._in_lanes: dict[bytes, dict[Spot, Work]] = {}
        self._too_many: dict[bytes, deque[Work]] = {}
        """Fresh records that wait until there is room behind others of their key."""

    def join(self, place: TopicPartition, station: Station) -> None:
        """Take up a partition: the source, or one of its rooms."""
        self._stations[place] = station
        if place == self._source:
            self.keys.is_under_way = station.tracker.is_under_way

    @property
    def held_up(self) -> int:
        """How many fresh records wait because too many of their key wait already."""
        return sum(map(len, self._too_many.values()))

    # Records come in

    def takes(self, work: Work, report: Report) -> bool:
        """Take a record of the source whose key is blocked; False: it may run."""
        key = work.record.key
        if key is None or (key not in self.keys and key not in self._too_many):
            return False
        decided = self._decided(key, work)
        if decided != "copy" and (decided == "wait" or key in self._too_many):
            self._waits(key, work)
            return True
        return self._takes(key, work, decided, report)

    def _decided(self, key: bytes, work: Work) -> Fresh:
        spot = Spot(self._source, work.offset)
        return self.keys.fresh(key, spot, work.record.timestamp or 0)

    def _takes(self, key: bytes, work: Work, decided: Fresh, report: Report) -> bool:
        if decided == "copy":
            report.outcomes.append(Outcome("skip", work.offset, work.record, reason=_COPY))
        elif decided == "behind":
            self._goes_behind(key, work, report)
        return decided != "run"

    def read_to(self, offset: int) -> None:
        """Note that the source was read up to there."""
        self.keys.source_read(offset)

    def arrives(self, place: TopicPartition, record: Record, envelope: Envelope) -> bool:
        """Take note of a record that was read in a room; False: it is one too many."""
        if record.key is None or not self.is_about(envelope):
            return True
        spot = Spot(place, record.offset)
        takes = self.keys.arrives(spot, record.key, origin_of(envelope), stage_of(envelope))
        self._read_others_again(spot)
        return takes

    def puts_off(self, place: TopicPartition, start: Position, end: int) -> int:
        """Put off what was found at the beginning of a room; returns where reading begins.

        Only if it is more than is kept at hand: whoever has little time would read it, find that it
        waits, and never come to what stands behind it.
        """
        waiting, done = self.keys.waiting_in(place), done_beyond.decode(start)
        found: list[int] = []
        begin = start.offset
        while begin < end and (begin in waiting or done_beyond.includes(done, begin)):
            if begin in waiting:
                found.append(begin)
            begin += 1
        if len(found) <= self._most_kept:
            return start.offset
        station = self._stations[place]
        for offset in station.tracker.receive(found):
            station.tracker.put_off(offset)
            self._unread.add(Spot(place, offset))
        station.given_back.note_read(begin)
        return begin

    def is_about(self, envelope: Envelope) -> bool:
        """Whether a record is of this partition: before the order was strict, any could be here."""
        return (envelope.origin_topic, envelope.origin_partition) == self._source

    def holds(self, place: TopicPartition, work: Work) -> bool:
        """Hold a record of a room that is due, until its key lets it go; False: it has none."""
        key = work.record.key
        spot = Spot(place, work.offset)
        if key is None or not self.keys.knows(spot):
            return False
        self._hold(key, spot, work)
        self.keys.changed.add(key)
        return True

    def held(self, place: TopicPartition) -> list[Work]:
        """What of a room is due, and waits for its key."""
        works = (each for held in self._held.values() for each in held.items())
        return [work for spot, work in works if spot.room == place]

    def lets_out(self, place: TopicPartition, work: Work) -> None:
        """Hold a record no longer: it goes elsewhere."""
        if work.record.key is not None:
            self._taken(work.record.key, Spot(place, work.offset))

    # Outcomes

    def note(self, place: TopicPartition, report: Report) -> None:
        """Take note of what became of records; the same report may come twice."""
        in_room = place != self._source
        if in_room:
            for offset in (*report.done, *(sent[0] for sent in report.sent)):
                self._ended(Spot(place, offset))
        for outcome in report.outcomes:
            key, envelope = outcome.record.key, outcome.envelope
            if key is None:
                continue
            spot = Spot(place, outcome.offset)
            self._unread.discard(spot)
            if outcome.kind in _MOVES and envelope is not None and self.is_about(envelope):
                self.keys.leaves(key, origin_of(envelope), stage_of(envelope), spot)
            elif in_room:
                self._ended(spot)

    def freed(self, lanes: Iterable[Lane]) -> None:
        """Note that lots of these lanes have ended."""
        if self.keys:
            self.keys.changed.update(
                lane.key for lane in lanes if isinstance(lane.key, bytes) and lane.key in self.keys
            )

    def committed(self, place: TopicPartition, position: Position) -> None:
        """Note what is committed in one of the partitions."""
        self.keys.committed(place, position)

    # What follows from it

    def step(self, now: int) -> dict[TopicPartition, Report]:
        """Let pass what may, and send behind what may not; reports by partition."""
        reports: dict[TopicPartition, Report] = {}
        changed = self.keys.changed
        while changed:
            self._step(changed.pop(), now, reports)
        return reports

    def _step(self, key: bytes, now: int, reports: dict[TopicPartition, Report]) -> None:
        source = self._stations[self._source]
        report = reports.setdefault(self._source, Report())
        if key in self.keys:
            source.spread(now, report)
            self._send_behind(key, source.lanes, report)
            self._recall(key)
            self._drop_copies(key, reports)
        self._take_up_waiting(key, source.lanes, report)
        if key not in self.keys:
            self._let_go.pop(key, None)
            self._in_lanes.pop(key, None)
        elif not source.lanes.has(key):
            busy = [place for place, each in self._stations.items() if each.lanes.has(key)]
            self._let_go.setdefault(key, deque()).extend(self.keys.ready(key, busy))
            self._pass(key)

    def _send_behind(self, key: bytes, lanes: Lanes, report: Report) -> None:
        waiting = lanes.waiting_of(key)
        if not waiting:
            return
        lanes.take_out(waiting)
        for work in waiting:
            work.lane = None
            if not self.takes(work, report):
                lanes.add(work)

    def _recall(self, key: bytes) -> None:
        """Take those out of their lanes that were let go, and have to wait again.

        What is part of a lot is taken out when that has ended, and has put it back.
        """
        in_lanes = self._in_lanes.get(key, {})
        back = {spot: work for spot, work in in_lanes.items() if not self.keys.may_run(spot)}
        for spot, work in back.items():
            lanes = self._stations[spot.room].lanes
            if not self.keys.knows(spot):
                del in_lanes[spot]
            elif work in lanes.waiting_of(key):
                del in_lanes[spot]
                lanes.take_out([work])
                work.lane = None
                self._hold(key, spot, work)
        waiting = self._let_go.get(key, deque())
        self._let_go[key] = deque(spot for spot in waiting if self.keys.may_run(spot))

    def _drop_copies(self, key: bytes, reports: dict[TopicPartition, Report]) -> None:
        held = self._held.get(key, {})
        for spot in [spot for spot in held if self.keys.is_copy(spot)]:
            work = self._taken(key, spot)
            self.keys.drops(spot)
            if work is not None:
                outcome = Outcome("skip", work.offset, work.record, reason=_COPY)
                reports.setdefault(spot.room, Report()).outcomes.append(outcome)

    def _take_up_waiting(self, key: bytes, lanes: Lanes, report: Report) -> None:
        waiting = self._too_many.get(key)
        while waiting:
            decided = self._decided(key, waiting[0])
            if decided == "wait":
                return
            work = waiting.popleft()
            if not self._takes(key, work, decided, report):
                lanes.add(work)
        self._too_many.pop(key, None)

    def _pass(self, key: bytes) -> None:
        """Put those that may run into their lanes; one that is not at hand is read again first."""
        let_go = self._let_go[key]
        while let_go:
            spot = let_go[0]
            if spot in self._in_lanes.get(
                key, ()
            ):  # it was not taken out, as its lot had not ended
                let_go.popleft()
                continue
            work = self._taken(key, spot)
            if work is None:  # not read, or not due yet
                self._read_again(spot)
                return
            let_go.popleft()
            self._in_lanes.setdefault(key, {})[spot] = work
            self._stations[spot.room].lanes.add(work)
        del self._let_go[key]

    # How it is kept

    def _goes_behind(self, key: bytes, work: Work, report: Report) -> None:
        envelope = self._stations[self._source].envelope_of(work)
        subject = Subject(work.offset, work.record, envelope)
        outcome = behind(self._app, subject)
        spot = Spot(self._source, work.offset)
        self.keys.leaves(key, origin_of(envelope), stage_of(envelope), spot)
        report.outcomes.append(outcome)

    def _waits(self, key: bytes, work: Work) -> None:
        if key not in self._too_many:
            self._too_many[key] = deque()
            log.warning(
                "%s: %d records of one key wait behind one that was parked (max_behind): this"
                " partition waits with %s until there are fewer",
                self._source,
                self.keys.behind(key),
                work.record.place,
            )
        self._too_many[key].append(work)

    def _ended(self, spot: Spot) -> None:
        self._unread.discard(spot)
        self._read_others_again(spot)
        key = self.keys.ends(spot)
        if key is not None and (works := self._in_lanes.get(key)) is not None:
            works.pop(spot, None)
            if not works:
                del self._in_lanes[key]

    def _read_others_again(self, spot: Spot) -> None:
        """Have other copies of a record read that were put off, so that they are dropped."""
        for other in self.keys.copies_beside(spot) if self._unread else ():
            self._read_again(other)

    def _read_again(self, spot: Spot) -> None:
        if spot in self._unread:
            self._stations[spot.room].given_back.read_again(spot.offset)

    def _hold(self, key: bytes, spot: Spot, work: Work) -> None:
        """Keep it at hand, or by its offset only, where enough is at hand."""
        if self._is_far(spot) and not self.keys.may_run(spot):
            self._unread.add(spot)
            self._stations[spot.room].tracker.put_off(work.offset)
            return
        self._unread.discard(spot)
        self._held.setdefault(key, {})[spot] = work
        self._at_hand[spot.room] = self._at_hand.get(spot.room, 0) + 1

    def _taken(self, key: bytes, spot: Spot) -> Work | None:
        held = self._held.get(key, {})
        work = held.pop(spot, None)
        if work is not None:
            self._at_hand[spot.room] -= 1
            if not held:
                del self._held[key]
        return work

    def _is_far(self, spot: Spot) -> bool:
        return self._at_hand.get(spot.room, 0) >= self._most_kept

    @property
    def _most_kept(self) -> int:
        return min(FOLLOWERS_AT_HAND, self._most_at_hand)


def origin_of(envelope: Envelope) -> Origin:
    """Which record it is."""
    return Origin(envelope.origin_offset, envelope.operation or "", envelope.origin_timestamp or 0)


def stage_of(envelope: Envelope) -> Stage:
    """How far it has come."""
    return Stage(envelope.attempt, envelope.due or 0)
