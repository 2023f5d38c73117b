"""Lanes: which record may run next, in the order that was asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from redrive.processing.work import Lane, Work
from redrive.tuning import LARGE_LOT, LARGE_LOT_SECONDS, LOT, QUICK_RECORD

if TYPE_CHECKING:
    from redrive.choices import Ordering
    from redrive.record import Record

_NONE: Final[Mapping[Work, int]] = MappingProxyType({})


class LongLanes:
    """How many threads are with lanes that have much to do, over all partitions of a process."""

    def __init__(self, concurrency: int) -> None:
        self.most = concurrency // 2
        """So many go before others: half of the threads are left to those."""
        self.running = 0


class Lanes:
    """The work of one topic-partition, waiting to run.

    Lanes take turns: after its lot a lane goes to the end of its queue. Lanes with much to do have
    a queue of their own, because everybody would have to wait for them at the end: every second
    turn, until they have half of the threads. So a hot key cannot starve the others. Records
    without order (unordered, or with a null key) are in no lane.
    """

    def __init__(
        self,
        ordering: Ordering,
        concurrency: int,
        long_lanes: LongLanes | None = None,
        *,
        together: bool = False,
    ) -> None:
        """With `together`, a lot is taken from several lanes: one transaction for all of them."""
        self._ordering = "key" if ordering == "strict" else ordering
        self._concurrency = concurrency
        self._long_lanes = long_lanes or LongLanes(concurrency)
        self._together = together
        self._pace: float | None = None
        self.quick = False
        """Whether handlers take so little time that threads only get in each other's way: one
        thread runs Python at a time."""
        self._lanes: dict[object, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._long: deque[Lane] = deque()
        self._long_turn = True
        self._long_running = 0
        """Of this partition."""
        self._free: deque[Work] = deque()
        self.sleeping: list[tuple[int, int, Lane | Work]] = []
        """A heap of what waits in place, by the steady time until which it does."""
        self._sequence = count()
        self._free_turn = False
        self.shut: dict[str, deque[Lane | Work]] = {}
        """What could run but for an outage of its handler, by source topic: in the order in which
        it is let out."""
        self._apart: dict[Work, int | None] = {}
        """Records that are not taken together with those before them: the steady time before which
        they must not run; None: they are called alone next time."""

    def add(self, work: Work, *, until: int | None = None) -> None:
        """Put a record at the end of its lane; with `until`, it does not run before that time."""
        key = self._key(work.record)
        if key is None:
            self._start(work, until)
            return
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = work.lane = lane = Lane(key)
            lane.queue.append(work)
            self._start(lane, until)
            return
        if until is not None:
            self._apart[work] = until
        work.lane = lane
        lane.queue.append(work)

    def _key(self, record: Record) -> object:
        if self._ordering == "key":
            return record.key
        return "partition" if self._ordering == "partition" else None

    def extend(self, works: list[Work]) -> None:
        """Put many at the end of their lanes."""
        if self.shut:
            for work in works:
                self.add(work)
        elif self._ordering == "unordered":
            self._free.extend(works)
        elif self._ordering == "partition":
            self.add(works[0])
            lane = works[0].lane
            for work in works:
                work.lane = lane
            self._lanes["partition"].queue.extend(works[1:])
        else:
            self._extend_keys(works)

    def _extend_keys(self, works: list[Work]) -> None:
        """As `add` does, without a call for each: it is run for every record."""
        lanes, ready, free = self._lanes, self._ready, self._free
        for work in works:
            key = work.record.key
            if key is None:
                free.append(work)
                continue
            lane = lanes.get(key)
            if lane is None:
                lanes[key] = lane = Lane(key)
                ready.append(lane)
            work.lane = lane
            lane.queue.append(work)

    def wake(self, now: int) -> None:
        """Make ready what has waited long enough."""
        while self.sleeping and self.sleeping[0][0] <= now:
            self._start(heappop(self.sleeping)[2])

    def sleepers(self) -> list[Work]:
        """The records that wait for their time: of a sleeping lane, its head."""
        return [
            sleeper.queue[0] if isinstance(sleeper, Lane) else sleeper
            for _, _, sleeper in self.sleeping
        ]

    def drop(self, sleeper: Work) -> None:
        """Take a sleeping record out; those behind it need not wait any more."""
        what = sleeper.lane or sleeper
        self.sleeping = [each for each in self.sleeping if each[2] is not what]
        heapify(self.sleeping)
        self._apart.pop(sleeper, None)
        if sleeper.lane is not None:
            sleeper.lane.queue.popleft()
            self.free(sleeper.lane)

    def waiting(self) -> list[Work]:
        """All records that have not been taken, whatever they wait for."""
        others = (*(each for _, _, each in self.sleeping), *self._all_shut())
        alone = [each for each in others if isinstance(each, Work)]
        return [work for lane in self._lanes.values() for work in lane.queue] + [
            *self._free,
            *alone,
        ]

    def waiting_of(self, key: object) -> list[Work]:
        """The records of one lane that have not been taken."""
        lane = self._lanes.get(key)
        return [] if lane is None else list(lane.queue)

    def has(self, key: object) -> bool:
        """Whether records of that key wait in their lane, or run."""
        return key in self._lanes

    def _all_shut(self) -> list[Lane | Work]:
        return [each for queue in self.shut.values() for each in queue]

    def take_out(self, works: Collection[Work]) -> None:
        """Take records out that have not been taken; those behind them move up."""
        gone = set(works)
        for lane in {work.lane for work in gone if work.lane is not None}:
            kept = [work for work in lane.queue if work not in gone]
            lane.queue.clear()
            lane.queue.extend(kept)
        self._free = deque(work for work in self._free if work not in gone)
        self._apart = {work: until for work, until in self._apart.items() if work not in gone}
        self.sleeping = [each for each in self.sleeping if each[2] not in gone]
        for topic, queue in self.shut.items():
            self.shut[topic] = deque(each for each in queue if each not in gone)
        asleep = [each for _, _, each in self.sleeping]
        for each in (*self._ready, *self._long, *asleep, *self._all_shut()):
            # One that is not among these is busy: whoever frees it finds that nothing is left.
            if isinstance(each, Lane) and not each.queue:
                self._lanes.pop(each.key, None)
        self._ready = deque(lane for lane in self._ready if lane.queue)
        self._long = deque(lane for lane in self._long if lane.queue)
        self.sleeping = [
            each for each in self.sleeping if isinstance(each[2], Work) or each[2].queue
        ]
        heapify(self.sleeping)

    # During an outage

    def shut_off(self, topic: str) -> None:
        """Let nothing of a handler run, but for what `let_out` lets out.

        What runs of other handlers stays where it is: it may have been let out of its own outage.
        """
        shut = self.shut.setdefault(topic, deque())
        lanes = [lane for lane in (*self._ready, *self._long) if self._is_of(lane, topic)]
        works = [work for work in self._free if self._is_of(work, topic)]
        if lanes:
            gone = set(lanes)
            self._ready = deque(lane for lane in self._ready if lane not in gone)
            self._long = deque(lane for lane in self._long if lane not in gone)
        if works:
            self._free = deque(work for work in self._free if not self._is_of(work, topic))
        shut += (*lanes, *works)

    def reopen(self, topic: str) -> None:
        """Let all of it run again."""
        for each in self.shut.pop(topic, ()):
            if isinstance(each, Work) or each.queue:
                self._start(each)

    def let_out(self, topic: str, *, last: Collection[int] = ()) -> Work | None:
        """Let the next one run, alone: whose turn it is among all keys; None: nothing waits.

        Those with the offsets in `last` come after all others.
        """
        queue = self.shut.get(topic)
        if queue and last:
            first = [each for each in queue if _head_of(each) not in last]
            behind = [each for each in queue if _head_of(each) in last]
            queue.clear()
            queue.extend([*first, *behind])
        while queue:
            each = queue.popleft()
            if isinstance(each, Lane):
                if not each.queue:
                    self._lanes.pop(each.key, None)
                    continue
                self._ready.appendleft(each)
                head = each.queue[0]
            else:
                self._free.appendleft(each)
                head = each
            self._apart[head] = None
            return head
        return None

    def rouse(self, works: Collection[Work]) -> None:
        """Have these wait no longer for their time; each of them is taken alone."""
        roused = {work.lane or work for work in works}
        asleep = [each[2] for each in sorted(self.sleeping) if each[2] in roused]
        self.sleeping = [each for each in self.sleeping if each[2] not in roused]
        heapify(self.sleeping)
        self.call_alone(works)
        for each in asleep:
            self._start(each)

    def waits_for_thread(self, work: Work) -> bool:
        """Whether a record is the next of those that may run."""
        if work.lane is None:
            return work in self._free
        lane = work.lane
        is_next = bool(lane.queue) and lane.queue[0] is work
        return is_next and (lane in self._ready or lane in self._long)

    def waits_for_end(self, topic: str) -> bool:
        """Whether anything of a handler waits for the end of its outage."""
        return bool(self.shut.get(topic))

    def _is_shut(self, what: Lane | Work) -> bool:
        return any(self._is_of(what, topic) for topic in self.shut)

    def _is_of(self, what: Lane | Work, topic: str) -> bool:
        """Whether what would run next is a call of that handler: a recovery is none."""
        head = what.queue[0] if isinstance(what, Lane) and what.queue else what
        return isinstance(head, Work) and head.handler.topic == topic and head.ending is None

    def next_wake(self) -> int | None:
        """When `wake` has something to do."""
        return self.sleeping[0][0] if self.sleeping else None

    def occupy(self, record: Record) -> Lane | None:
        """The lane of a record that runs without being in it: those that come wait behind it."""
        key = self._key(record)
        return None if key is None else self._lanes.setdefault(key, Lane(key))

    @property
    def ready(self) -> int:
        """How many lanes, and records in no lane, may run now."""
        return len(self._ready) + len(self._long) + len(self._free)

    def take(self) -> tuple[list[Work], list[Lane]]:
        """The next lot: from one lane, or of records in no lane; nothing if nothing is ready."""
        self._free_turn = not self._free_turn
        first = self._first()
        if self._free and (self._free_turn or first is None):
            return self._take_free(), []
        if first is None:
            return [], []
        before_others = self._long_may_go_before
        lane = self._take_first()
        head = lane.queue[0]
        long = len(lane.queue) > LOT and head.handler.ack != "manual"
        size = self._lot_size(head, self._size(large=long and before_others))
        if long:
            self._note_long(lane)
        works = _alike(lane.queue, size, self._apart)
        lanes = [lane]
        several = self._together or self.quick or head.handler.batch is not None
        most = self._most_lanes(head, size) if several else 1
        while len(lanes) < most and len(works) < size and (first := self._first()) is not None:
            # A batch is filled from several lanes; each is busy until the call has ended.
            if not _same(head, first.queue[0]) or first.queue[0] in self._apart:
                break
            lane = self._take_first()
            works += _alike(lane.queue, size - len(works), self._apart)
            lanes.append(lane)
        return works, lanes

    def call_alone(self, works: Iterable[Work]) -> None:
        """Have each of these called without others, the next time that it is taken."""
        self._apart.update(dict.fromkeys(works))

    def note_pace(self, seconds: float, records: int) -> None:
        """Take note of how long records took.

        Where handlers are quick a lot is taken from several lanes: handing over a record of one
        lane each would cost more than running it, and nobody waits long for the others.
        """
        now = seconds / records
        self._pace = now if self._pace is None else 0.8 * self._pace + 0.2 * now
        self.quick = self._pace < QUICK_RECORD

    def put_back(self, works: list[Work], waits: Mapping[Work, int] = _NONE) -> None:
        """Return records to where they were, in their order; some in no lane wait until a time."""
        for work in reversed(works):
            if work.lane is not None:
                work.lane.queue.appendleft(work)
            elif work in waits:
                self._start(work, waits[work])
            elif self.shut:
                self._start(work)
            else:
                self._free.appendleft(work)

    def free(self, lane: Lane, *, until: int | None = None) -> None:
        """The lot of that lane has ended: its next record may run, or from `until` on."""
        if lane.long and self._long_running:
            lane.long = False
            self._long_running -= 1
            self._long_lanes.running -= 1
        if not lane.queue:
            self._lanes.pop(lane.key, None)
        else:
            first = self._apart.get(lane.queue[0]) if self._apart else None
            if first is not None:
                del self._apart[lane.queue[0]]
                until = max(first, until or first)
            self._start(lane, until)

    def close(self) -> None:
        """The partition has gone: its lots end, and nobody frees their lanes."""
        self._long_lanes.running -= self._long_running
        self._long_running = 0

    def take_all(self, lane: Lane) -> list[Work]:
        """Take all that waits in the lane out of it."""
        works = list(lane.queue)
        lane.queue.clear()
        for work in works if self._apart else ():
            self._apart.pop(work, None)
        return works

    def _most_lanes(self, head: Work, size: int) -> int:
        if _is_batch(head):
            return size
        if head.handler.ack == "manual" or not (self._together or self.quick):
            return 1
        if self.quick and not self._together:
            return size  # few threads share the work: see `quick`
        # As few as leave enough for all threads.
        ready = len(self._ready) + len(self._long)
        return max(1, (ready + 1) // (2 * self._concurrency))

    def _first(self) -> Lane | None:
        """The lane whose turn it is."""
        queue = self._whose_turn()
        return queue[0] if queue else None

    def _take_first(self) -> Lane:
        queue = self._whose_turn()
        self._long_turn = queue is not self._long
        return queue.popleft()

    def _whose_turn(self) -> deque[Lane]:
        ready = self._ready
        while ready and self._is_long(ready[0]):  # it has grown since it was put there
            self._long.append(ready.popleft())
        if not self._long or not ready:
            return ready or self._long
        return self._long if self._long_turn and self._long_may_go_before else ready

    def _is_long(self, lane: Lane) -> bool:
        """Whether much is to do; one thread alone has to be fair to all."""
        return len(lane.queue) > LOT and self._concurrency > 1

    @property
    def _long_may_go_before(self) -> bool:
        return self._long_lanes.running < self._long_lanes.most

    def _size(self, *, large: bool) -> int:
        if self.quick:
            return LARGE_LOT
        if not large or self._together or self._pace is None:
            return LOT
        return max(LOT, min(LARGE_LOT, int(LARGE_LOT_SECONDS / self._pace)))

    def _note_long(self, lane: Lane) -> None:
        lane.long = True
        self._long_running += 1
        self._long_lanes.running += 1

    def _take_free(self) -> list[Work]:
        free = self._free
        # Large lots while there is much to do, single records towards the end: no thread is left
        # with a long lot while the others are idle.
        share = max(1, min(LOT, len(free) // (2 * self._concurrency)))
        return _alike(free, self._lot_size(free[0], share), self._apart)

    def _lot_size(self, head: Work, otherwise: int) -> int:
        if head in self._apart:
            del self._apart[head]
            return 1
        if head.handler.ack == "manual":
            return 1
        return head.handler.batch or otherwise if head.ending is None else otherwise

    def _start(self, what: Lane | Work, until: int | None = None) -> None:
        if until is not None:
            heappush(self.sleeping, (until, next(self._sequence), what))
        elif self.shut and self._is_shut(what):
            self._shut_of(what).append(what)
        elif isinstance(what, Lane):
            (self._long if self._is_long(what) else self._ready).append(what)
        else:
            self._free.append(what)

    def _shut_of(self, what: Lane | Work) -> deque[Lane | Work]:
        head = what.queue[0] if isinstance(what, Lane) else what
        return self.shut[head.handler.topic]


def _head_of(what: Lane | Work) -> int | None:
    """The offset of the record that would run next."""
    head = what if isinstance(what, Work) else next(iter(what.queue), None)
    return None if head is None else head.offset


def _alike(queue: deque[Work], most: int, apart: Collection[Work]) -> list[Work]:
    """Take up to so many from the queue's head, as long as they are for the same call."""
    head = queue[0]
    handler, ending = head.handler, head.ending is None
    works: list[Work] = []
    take = queue.popleft
    while queue and most:
        work = queue[0]
        if work.handler is not handler or (work.ending is None) is not ending:
            break
        if apart and works and work in apart:
            break
        works.append(take())
        most -= 1
    return works


def _is_batch(work: Work) -> bool:
    return work.handler.batch is not None and work.ending is None


def _same(one: Work, other: Work) -> bool:
    return one.handler is other.handler and (one.ending is None) == (other.ending is None)
