"""Selection: which letters an operation is about, what it writes for them, whom it leaves out.

The same for a dry run, which only counts, and for the job itself: so a dry run's counts are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redrive import envelope as envelopes
from redrive.dead.copies import NAMING, Copy, LeftOut, Replay, Why
from redrive.dead.fixing import Fix, FixError, difference, fixed
from redrive.dead.groups import Group, Groups
from redrive.dead.patience import Patience
from redrive.dead.scan import Found, Planned, Scanned
from redrive.dead.standing import Standings, lots
from redrive.dead.state_topic import mark_write, marked
from redrive.errors import EnvelopeError, HandlerTimeout
from redrive.handler import name_of
from redrive.processing.work import Assigned, Work
from redrive.record import Record, TopicPartition, Write
from redrive.tuning import DEAD_DIFFERENCES, DEAD_NAMES, TRIAL_TIMEOUT

if TYPE_CHECKING:
    from redrive.dead.desk import Desk
    from redrive.dead.filters import Filter
    from redrive.dead.letter import Letter
    from redrive.dead.letters import DeadLetters
    from redrive.dead.operations import Operation
    from redrive.dead.state_topic import Known
    from redrive.delivery.store import Claim
    from redrive.ports import Clock


_NOT_NEEDED: Final[Mapping[str, Why]] = {
    "done": "done-meanwhile",
    "duplicate": "done-meanwhile",
    "waiting": "waiting",
}
"""Why a copy would be dropped by the inbox. One with the id of another payload dies again."""


def _counted(names: Counter[str]) -> str:
    told = [f"{name} {count:,}" for name, count in names.most_common(DEAD_NAMES)]
    return ", ".join([*told, *(["..."] if len(names) > DEAD_NAMES else [])])


class Chosen(NamedTuple):
    """A record, and what becomes of it."""

    record: Record
    copy: Copy
    found: Found | None = None
    """The letter that it is, if it is one."""
    done: Claim | None = None
    """What the inbox has to forget first, for the copy to be handled."""


@dataclass
class ReplayPlan:
    """What a replay, or discarding, would do: a dry run."""

    letters: int = 0
    """How many would be replayed."""
    targets: Counter[str] = field(default_factory=Counter)
    """The topics that copies would go to."""
    left_out: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """For each reason to leave letters out: what was said of one of them; of topics and apps, which
    they are, with how many letters."""
    groups: list[Group] = field(default_factory=list)
    changed: int = 0
    """How many values a fix changes."""
    differences: list[tuple[str, list[str]]] = field(default_factory=list)
    """What it changes, of the first few."""
    scanned: Scanned | None = None
    unknown: str = ""
    """What could not be found out, and why."""
    topic_id: str = ""
    """Of the dead topic that it has looked at."""

    @property
    def planned(self) -> Planned:
        """What it has looked at, for the job that comes of it."""
        return Planned(self.topic_id, None if self.scanned is None else self.scanned.bounds)

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
            "unknown": self.unknown,
            "scan": None if self.scanned is None else self.scanned.as_data(),
        }


@dataclass
class Selection:
    """Which letters an operation is about, and what it writes for them."""

    letters: DeadLetters
    wanted: Filter
    clock: Clock
    replay: Replay | None = None
    """How letters are replayed; None: they are discarded."""
    again: bool = False
    """Also those that were replayed before."""
    fix: Fix | None = None
    standings: Standings | None = None
    """What the app's inbox would do with copies; None: it has none, or it is not asked."""

    def __post_init__(self) -> None:
        self._scanned = Scanned(self.letters.topic)
        self._patience = Patience()
        self.passed: dict[str, int] = {}
        """The ends of partitions that were looked at from end to end."""

    def chosen(self, found: Iterable[Found]) -> Iterator[Chosen]:
        """What becomes of each letter."""
        try:
            yield from self._chosen(found)
        finally:
            self._patience.close()

    def _chosen(self, found: Iterable[Found]) -> Iterator[Chosen]:
        if self.standings is None:
            for each in found:
                yield Chosen(each.letter.record, self._copy(each), each)
            return
        for some in lots(found, lambda each: each.letter.record):
            copies = [self._copy(each) for each in some]
            stands = self.standings.of([*map(self._work, copies)])
            for each, copy, (standing, _) in zip(some, copies, stands, strict=True):
                why = _NOT_NEEDED.get(standing)
                left = self._as_of_now(each, copy) if why is None else LeftOut(why)
                yield Chosen(each.letter.record, left, each)

    # What running the operation needs

    @property
    def deleted(self) -> int:
        """Offsets that retention has deleted before they were read."""
        return self._scanned.deleted

    def rest(
        self, desk: Desk, operation: Operation, stopping: Callable[[], object]
    ) -> Iterator[Chosen]:
        """What becomes of each letter from the cursor on, partition by partition."""
        scan = self.letters.scan(self.wanted, known=desk.known, bounds={}, stopping=stopping)
        self._scanned = scan.result
        for name, end in operation.ends.items():
            start = operation.cursor.get(name, 0)
            yield from self.chosen(scan.partition(int(name), start, end))
            self.passed[name] = end

    def check(self, desk: Desk, operation: Operation) -> None:
        """See that the dead topic is still the one that the operation began with."""
        desk.check_topic(operation)

    def partition_of(self, record: Record) -> str:
        """Letters are in one topic."""
        return str(record.partition)

    def prepare(self, some: Sequence[Chosen]) -> int:
        """A letter needs nothing: its id was forgotten when it was buried."""
        del some
        return 0

    def marks(self, desk: Desk, chosen: Chosen, operation: Operation) -> list[Write]:
        """The letter's own mark."""
        before = None if chosen.found is None else chosen.found.mark
        state = "discarded" if chosen.copy is None else "replayed"
        now = marked(before, state, operation.id)
        return [mark_write(desk.topic, operation.topic_id, chosen.record, now, operation)]

    # What a dry run says

    def plan(self, known: Known) -> ReplayPlan:
        """Count what would be done."""
        topic_id = self.letters.log.topic_id(self.letters.topic)  # before its offsets
        scan = self.letters.scan(self.wanted, known=known)
        plan = ReplayPlan(scanned=scan.result, topic_id=topic_id)
        groups = Groups(self.letters.seen)
        named: dict[str, Counter[str]] = {why: Counter() for why in NAMING}
        for each in self.chosen(scan):
            found, copy = each.found, each.copy
            if isinstance(copy, LeftOut):
                plan.left_out[copy.why] += 1
                plan.examples.setdefault(copy.why, copy.said)
                named.get(copy.why, Counter())[copy.said] += 1
                continue
            plan.letters += 1
            assert found is not None  # noqa: S101 -- letters were asked for
            groups.add(found.letter, found.state)
            if copy is not None:
                plan.targets[copy.topic] += 1
                if self.fix is not None:
                    self._compare(plan, found, copy)
        plan.groups = groups.largest_first()
        plan.examples |= {why: _counted(names) for why, names in named.items() if len(names) > 1}
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
                value = self._fixed(self.fix, letter)
            except FixError as error:
                return LeftOut("fix-failed", str(error))
        return self.replay.copy(letter, value, self.clock.now())

    def _fixed(self, fix: Fix, letter: Letter) -> bytes:
        """The value that a fix makes, if it does so in time; so many hang, and it is not asked."""
        app = self.letters.app
        try:
            return self._patience.call(lambda _: fixed(fix, letter, app), TRIAL_TIMEOUT)
        except HandlerTimeout as error:
            said = f"{name_of(fix)}, or the decoder before it, {error} for {letter.place}"
            if self._patience.is_over:
                raise HandlerTimeout(
                    f"{said}, nor for others before it: find out why, or leave these letters out"
                ) from error
            raise FixError(said) from error

    def _as_of_now(self, found: Found, copy: Copy) -> Copy:
        """The copy, whose age counts from now: at a slow pace it was made long ago."""
        if self.replay is None or not isinstance(copy, Write):
            return copy
        return self.replay.copy(found.letter, copy.value, self.clock.now())

    def _work(self, copy: Copy) -> Work | None:
        """A copy as its handler would see it; None: there is none, or it is not redrive's."""
        app = self.letters.app
        if app is None or not isinstance(copy, Write):
            return None
        try:
            envelope = envelopes.parse(copy.headers)
        except EnvelopeError:
            return None
        read = Record(copy.topic, 0, 0, copy.key, copy.value, copy.headers)
        record = envelopes.at_origin(read, envelope)
        assigned = Assigned(TopicPartition(record.topic, record.partition))
        return Work(assigned, record, app.handlers[record.topic], record.offset, 0, envelope)

    @property
    def _means_replayed(self) -> bool:
        """Whether letters that were replayed before are meant: only if somebody says so."""
        return self.again if self.replay is not None else "replayed" in self.wanted.states

    def _compare(self, plan: ReplayPlan, found: Found, copy: Write) -> None:
        before = found.letter.record.value
        if copy.value == before or copy.value is None:
            return
        plan.changed += 1
        if len(plan.differences) < DEAD_DIFFERENCES:
            lines = [*difference(found.letter, copy.value, self.letters.app)]
            plan.differences.append((found.letter.place, lines))
