"""History: what handlers were called with and what was written and committed; and what must hold.

Most of it is checked as it happens, so that a run ends at its first mistake.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.record import Record, TopicPartition
from simulation.scheduler import Process, World

PARKED = "parked"
LATEST_IS_SAID_WITHIN = 5.0
"""Seconds in which a run that begins with what comes must have written down where that was."""


class Violation(Exception):
    """A promise was broken; the text begins with the kind of it."""


@dataclass(eq=False)
class Call:
    """One record in one call of its handler."""

    uid: bytes
    process: Process
    place: TopicPartition
    offset: int
    key: bytes | None
    began: float
    tries: int
    attempt: int
    epoch: int
    company: int = 0
    """The call of a batch handler that it is part of: that has them all at once."""
    since: float = 0.0
    """When that call began: given up as a whole, it goes on with the rest of its records."""
    ended: float | None = None
    how: str = ""
    """How it ended: ok, fail, bury; outage, if that was no fault of the record."""
    decided: bool = False


@dataclass(eq=False)
class Entry:
    """One record of a source topic."""

    uid: bytes
    place: TopicPartition
    offset: int
    key: bytes | None
    behaviour: str
    written: float
    gone: bool = False
    """Whether its broker has deleted it: nobody can ask for it any more."""


@dataclass(eq=False)
class Epoch:
    """A partition with one process, from its assignment on."""

    number: int
    start: int
    at: float
    covered: set[int] = field(default_factory=set)
    """What was committed as done beyond the start."""
    decided: set[int] = field(default_factory=set)


class History:
    """What has happened, and what follows from it."""

    def __init__(self, world: World, plan: Any) -> None:
        self.world = world
        self.plan = plan
        self.entries: dict[bytes, Entry] = {}
        self.sources: dict[TopicPartition, dict[int, Entry]] = defaultdict(dict)
        self.copies: dict[str, Counter[bytes]] = defaultdict(Counter)
        """Of each topic but the sources, how often each value was written."""
        self.parked: dict[bytes, list[tuple[TopicPartition, int, float]]] = defaultdict(list)
        self.behind: dict[bytes, list[tuple[TopicPartition, int]]] = defaultdict(list)
        """In strict order, where each waits behind others."""
        self.calls: dict[bytes, list[Call]] = defaultdict(list)
        self.running: list[Call] = []
        self.companies: dict[tuple[Process, int], float] = {}
        """When each call of a batch handler began."""
        self.done: set[bytes] = set()
        self.rows: Counter[bytes] = Counter()
        """What handlers have written into the database, and committed."""
        self.in_inbox: set[str] = set()
        """The places of the records that the inbox knows: done, or parked."""
        self.committed: dict[TopicPartition, Position] = {}
        self.epochs: dict[tuple[Process, TopicPartition], Epoch] = {}
        self.away_until = 0.0
        """Until when what handlers depend on is away."""
        self.known: dict[TopicPartition, float] = {}
        """When each partition was first assigned to somebody."""
        self.recreated: set[TopicPartition] = set()
        self.total_calls = 0
        self.disturbed = False
        """Whether something has happened that may repeat work."""
        self.violation: Violation | None = None
        self.tell: Callable[[str], None] | None = None
        """Gets a line for all that happens, if somebody wants to see it."""
        self.moved_at = world.now
        """When something happened last."""
        self._epochs = 0

    def fail(self, kind: str, text: str) -> None:
        """Note that a promise was broken: the first one counts."""
        if self.violation is None:
            self.violation = Violation(f"{kind}: {text} (at {self.world.now - 1000:.3f} s)")

    def _say(self, text: str) -> None:
        self.moved_at = self.world.now
        if self.tell is not None:
            self.tell(f"{self.world.now - 1000:9.4f} {text}")

    # What is written

    def wrote(self, topic: str, partition: int, offset: int, value: bytes | None, **_: Any) -> None:
        if value is None or topic in self.plan.sources:
            return
        self.copies[topic][value] += 1
        self._say(f"written {value!r} to {topic}[{partition}]@{offset}")
        if topic in self.plan.delay_topics:
            place = TopicPartition(topic, partition)
            self.parked[value].append((place, offset, self.world.now))
        elif topic in self.plan.rooms:
            self.behind[value].append((TopicPartition(topic, partition), offset))
        elif topic == "out" and self.plan.delivery == "transaction":
            self._check_once(value)
        elif topic == self.plan.dead_topic:
            self._check_dead(value)

    def _check_once(self, value: bytes) -> None:
        entry = self.entries.get(value)
        allowed = 2 if entry is not None and entry.behaviour == "twins" else 1
        if entry is None:
            self.fail("phantom", f"{value!r} was sent, and nobody has it")
        elif self.copies["out"][value] > allowed:
            self.fail("duplicated", f"{value!r} was sent {self.copies['out'][value]} times")

    def _check_dead(self, value: bytes) -> None:
        entry = self.entries.get(value)
        if entry is None:
            self.fail("phantom", f"a dead letter {value!r} of no record")
            return
        if entry.behaviour in ("bury", "spoilt"):
            return
        failures = sum(self._has_failed(call) for call in self.calls[value])
        if failures <= self.plan.parks:
            self.fail(
                "buried",
                f"{value!r} ({entry.behaviour}) is dead after {failures} failures,"
                f" {self.plan.parks} of which are retried",
            )

    def _has_failed(self, call: Call) -> bool:
        return call.how == "fail" or self._is_given_up(call)

    def _is_abandoned(self, call: Call) -> bool:
        """Whether its batch was given up: nobody can stop the thread, which goes on with it."""
        timeout = self.plan.timeout
        return timeout is not None and self.world.now - call.since >= timeout

    def _had_company_too_long(self, call: Call) -> bool:
        """Whether it, or the batch that it was part of, was given up: all of it is called again."""
        others = [each for calls in self.calls.values() for each in calls] if call.company else []
        mine = [each for each in others if self._is_together(each, call)]
        return any(self._is_given_up(replace(each, began=each.since)) for each in (call, *mine))

    @staticmethod
    def _is_together(one: Call, other: Call) -> bool:
        return one.process is other.process and one.company == other.company

    def _is_given_up(self, call: Call) -> bool:
        timeout = self.plan.timeout
        end = self.world.now if call.ended is None else call.ended
        return timeout is not None and end - call.began >= timeout

    def inserted(self, uid: bytes) -> None:
        """A row of a handler is committed."""
        self.rows[uid] += 1
        self._say(f"inserted {uid!r}")
        if self.rows[uid] > 1 and "idempotent" in self.plan.delivery:
            entry = self.entries.get(uid)
            if entry is not None and entry.place in self.recreated:
                return  # read once before it was noticed: as a record of the topic before
            self.fail("duplicated", f"{uid!r} was committed {self.rows[uid]} times")

    def _is_done(self, uid: bytes) -> bool:
        return bool(self.rows[uid]) if self.plan.has_database else uid in self.done

    # What is called

    def begins(
        self, process: Process, record: Record, tries: int, attempt: int, company: int = 0
    ) -> Call:
        """A handler is called with a record."""
        self.total_calls += 1
        plan, uid = self.plan, record.value or b""
        # One that was parked has the place where it came from first.
        place = TopicPartition(record.topic if attempt == 1 else PARKED, record.partition)
        epoch = self.epochs.get((process, place))
        call = Call(
            uid,
            process,
            place,
            record.offset,
            record.key,
            self.world.now,
            tries,
            attempt,
            0 if epoch is None else epoch.number,
            company,
            self.companies.setdefault((process, company), self.world.now)
            if company
            else self.world.now,
        )
        entry = self.entries.get(uid)
        if entry is None or entry.key != record.key:
            self.fail("torn", f"{record.place} has {record.value!r} for the key {record.key!r}")
        elif attempt > 1:
            self._check_early(call)
        elif plan.is_strict or self._is_abandoned(call):
            pass
        elif epoch is not None and not entry.gone:
            self._check_order(call, entry, epoch)
            self._check_again(call, epoch)
        if plan.is_strict and entry is not None and not entry.gone:
            self._check_strictly(call, entry)
        if not self._is_abandoned(call):
            self._check_alone(call)
        # One that has returned and is not scheduled any more may be given up all the same.
        may_be_given_up = plan.timeout is not None and plan.gives_up_late
        if attempt > 1 + sum(map(self._has_failed, self.calls[uid])) and not may_be_given_up:
            self.fail("charged", f"{uid!r} has attempt {attempt}, and has not failed as often")
        self._say(f"{process.name} calls {uid!r} {place}@{call.offset} {call.key!r} try {tries}")
        self.calls[uid].append(call)
        self.running.append(call)
        return call

    def _check_order(self, call: Call, entry: Entry, epoch: Epoch) -> None:
        if self.plan.ordering == "unordered":
            return
        for offset, other in self.sources[call.place].items():
            if not epoch.start <= offset < call.offset or offset in epoch.covered or other.gone:
                continue
            same = other.key == entry.key or self.plan.ordering == "partition"
            if not same or offset in epoch.decided or self._is_known(other):
                continue
            if not self._is_excused(other, call):
                self.fail(
                    "out of order",
                    f"{call.place}@{call.offset} of {call.key!r} begins, @{offset} is undecided",
                )
                return

    def _check_strictly(self, call: Call, entry: Entry) -> None:
        """All before it of its key have come to their end, whatever has happened to them."""
        for offset, other in self.sources[entry.place].items():
            if offset < entry.offset and other.key == entry.key and not self._has_ended(other):
                self.fail(
                    "overtaken",
                    f"{entry.place}@{entry.offset} of {entry.key!r} begins, @{offset}"
                    f" ({other.behaviour}) has not ended",
                )
                return
        for each in self.running:
            same = each.process is call.process and each.key == call.key
            where = self.entries[each.uid].place
            if same and where == entry.place and not self._is_given_up(each):
                self.fail("side by side", f"{call.uid!r} beside {each.uid!r} of its key")

    def _has_ended(self, entry: Entry) -> bool:
        calls = self.calls[entry.uid]
        failures = sum(map(self._has_failed, calls))
        return (
            entry.gone
            or entry.uid in self.done
            or self._is_done(entry.uid)
            or failures > self.plan.parks
            or bool(self.copies[self.plan.dead_topic][entry.uid])
            or (entry.behaviour in ("bury", "spoilt") and any(each.how for each in calls))
        )

    def _is_known(self, entry: Entry) -> bool:
        """Whether the inbox has it, done or parked: then nobody calls it where it came from."""
        return f"{entry.place}@{entry.offset}" in self.in_inbox

    def _is_excused(self, other: Entry, call: Call) -> bool:
        """Whether its time was over, or the handler has both at once."""
        mine = [each for each in self.calls[other.uid] if each.epoch == call.epoch]
        together = any(each.company == call.company != 0 for each in mine)
        return together or any(map(self._is_given_up, mine))

    def _check_early(self, call: Call) -> None:
        if self.plan.clocks_jump:
            return
        copies = self.parked[call.uid][call.attempt - 2 :]
        due = [at + self.plan.delay_topics[place.topic] / 1000 for place, _, at in copies]
        if not due:
            self.fail("phantom", f"attempt {call.attempt} of {call.uid!r}, which was not parked")
        elif self.world.now < min(due) - 0.002:
            self.fail("early", f"{call.uid!r} begins {min(due) - self.world.now:.3f} s before")

    def _check_again(self, call: Call, epoch: Epoch) -> None:
        if call.offset < epoch.start or call.offset in epoch.covered:
            self.fail(
                "done again",
                f"{call.place}@{call.offset} runs, though it was committed as done before its"
                f" partition was taken up at {epoch.start}",
            )

    def _check_alone(self, call: Call) -> None:
        here = [
            each
            for each in self.running
            if each.process is call.process
            and not (self._is_given_up(each) or self._is_abandoned(each))
        ]
        if len(here) >= self.plan.concurrency and self.plan.form not in ("batch", "manual"):
            self.fail("too many", f"{len(here) + 1} handlers at once")
        if self.plan.ordering in ("unordered", "strict") or call.attempt > 1:
            return
        for each in here:
            same = each.key == call.key or self.plan.ordering == "partition"
            if each.place == call.place and same and each.offset != call.offset:
                self.fail(
                    "side by side", f"{call.place}@{call.offset} beside @{each.offset} of its key"
                )
            elif each.place == call.place and each.offset == call.offset:
                self.fail("side by side", f"{call.place}@{call.offset} beside itself")

    def ends(self, call: Call, how: str) -> None:
        """A handler has returned, or said what became of the record."""
        call.ended, call.how = self.world.now, how
        self._say(f"{call.process.name} ended {call.uid!r}: {how}")
        self.running.remove(call)
        if call.process.dead:
            return
        epoch = self.epochs.get((call.process, call.place))
        # Who gives up calls may itself not be scheduled in time: then a late result counts.
        if how == "ok" and (self.plan.gives_up_late or not self._is_given_up(call)):
            self.done.add(call.uid)
        decided = how != "outage" and (how != "fail" or call.tries >= self.plan.first_tries)
        if decided and epoch is not None and epoch.number == call.epoch:
            epoch.decided.add(call.offset)

    # What is assigned and committed

    def assigned(self, process: Process, place: TopicPartition, start: int) -> None:
        self._epochs += 1
        epoch = Epoch(self._epochs, start, self.world.now)
        self._say(f"{process.name} takes up {place} at {start}")
        position = self.committed.get(place)
        if position is not None and position.offset == start:
            for first, end in done_beyond.decode(position):
                epoch.covered.update(range(first, end))
        self.epochs[process, place] = epoch
        if self.plan.start_from == "latest" and place.topic in self.plan.sources:
            self._check_latest(place, start)

    def _check_latest(self, place: TopicPartition, start: int) -> None:
        """Who begins with what comes does so once: what comes after that is not passed over."""
        since = self.world.now - self.known.setdefault(place, self.world.now)
        passed = [
            each
            for offset, each in self.sources[place].items()
            if offset < start and not each.gone and not self.calls[each.uid]
        ]
        if passed and place not in self.committed:
            # The first commit takes a moment, in which it may come to nothing.
            if since > LATEST_IS_SAID_WITHIN and not self.plan.has_outages:
                self.fail("lost", f"{place} begins at {start} once more, behind {passed[0].uid!r}")
            for each in passed:
                each.gone = True

    def _note_first(self, place: TopicPartition, position: Position) -> None:
        """Who begins with what comes may say where that is before anybody has the partition."""
        is_first = place not in self.known and place.topic in self.plan.sources
        if is_first and self.plan.start_from == "latest":
            self._check_latest(place, position.offset)

    def forgotten(self, topic: str) -> None:
        """A topic was deleted, with all that was in it."""
        for place in [each for each in self.sources if each.topic == topic]:
            for entry in self.sources.pop(place).values():
                entry.gone = True
            self.committed.pop(place, None)
            self.known.pop(place, None)
            self.recreated.add(place)
        for key in [key for key in self.epochs if key[1].topic == topic]:
            del self.epochs[key]

    def commits(self, place: TopicPartition, position: Position) -> None:
        """A commit is durable: all that it passes must be, too."""
        if position != self.committed.get(place):
            self._say(f"committed {place} {position}")
        self._note_first(place, position)
        before = self.committed.get(place, Position(0))
        self.committed[place] = position
        passed = set(range(before.offset, position.offset))
        for first, end in done_beyond.decode(position):
            passed.update(range(first, end))
        if place.topic in self.plan.sources:
            for offset in sorted(passed):
                entry = self.sources[place].get(offset)
                if entry is not None and not entry.gone and self._was_there(place, entry):
                    self._check_durable(entry, place, offset)
        elif place.topic in self.plan.rooms:
            for uid in dict.fromkeys([*self.parked, *self.behind]):
                for where, offset in self._waits(uid):
                    if where == place and offset in passed and uid in self.entries:
                        self._check_durable(self.entries[uid], place, offset)

    def _waits(self, uid: bytes) -> list[tuple[TopicPartition, int]]:
        """Where copies of a record were written that wait."""
        return [*((where, at) for where, at, _ in self.parked[uid]), *self.behind[uid]]

    def _was_there(self, place: TopicPartition, entry: Entry) -> bool:
        """Not of a topic that was made again: a late commit of the one before says nothing."""
        return place not in self.recreated or bool(self.calls[entry.uid])

    def _check_durable(self, entry: Entry, place: TopicPartition, offset: int) -> None:
        uid = entry.uid
        if self.copies[self.plan.dead_topic][uid]:
            return
        done = self._is_done(uid)
        needed = {"send": 1, "twins": 2}.get(entry.behaviour.split(":")[0], 0)
        if done and (self.copies["out"][uid] >= needed or self.plan.has_outbox):
            return
        waits = [
            (where, at)
            for where, at in self._waits(uid)
            if not self._is_passed(where, at) and (where, at) != (place, offset)
        ]
        if not waits:
            what = f"not what {uid!r} has sent" if done else f"nothing has become of {uid!r}"
            self.fail("lost", f"{place}@{offset} is committed, but {what}")

    def _is_passed(self, place: TopicPartition, offset: int) -> bool:
        position = self.committed.get(place)
        if position is None:
            return False
        return offset < position.offset or any(
            first <= offset < end for first, end in done_beyond.decode(position)
        )

    # The end

    def _is_undone_with_others(self) -> bool:
        """Whether a refused write may undo the database's transaction after others have sent."""
        spoilt = any(each.behaviour == "spoilt" for each in self.entries.values())
        return spoilt and self.plan.delivery == "idempotent"

    def unresolved(self) -> list[Entry]:
        """Records of which nothing has become."""
        dead = self.copies[self.plan.dead_topic]
        return [
            each
            for each in self.entries.values()
            if not each.gone and not self._is_done(each.uid) and not dead[each.uid]
        ]

    def check_all(self) -> None:
        """What must hold when everything has come to rest."""
        dead, out = self.copies[self.plan.dead_topic], self.copies["out"]
        for entry in self.entries.values():
            if entry.gone:
                continue
            uid, kind = entry.uid, entry.behaviour.split(":")[0]
            if kind in ("bury", "spoilt"):
                if not dead[uid]:
                    self.fail("lost", f"{uid!r} ({kind}) is not among the dead letters")
                continue
            wanted = {"send": 1, "twins": 2}.get(kind, 0)
            if out[uid] < wanted and not dead[uid]:
                self.fail("lost", f"{uid!r} ({kind}) was sent {out[uid]} times")
            exact = self.plan.sends_once or not (self.disturbed or self._is_undone_with_others())
            if exact and out[uid] + wanted * dead[uid] > wanted:
                self.fail(
                    "duplicated", f"{uid!r} ({kind}) was sent {out[uid]} times, dead {dead[uid]}"
                )
            if not self.disturbed and not self.plan.has_database:
                calls = self.calls[uid]
                good = sum(call.how == "ok" for call in calls)
                if good > 1 and not any(map(self._had_company_too_long, calls)):
                    self.fail("duplicated", f"{uid!r} ({kind}) was handled {good} times")
