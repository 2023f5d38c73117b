"""Rewinder: handles old records again, on purpose and in somebody's name.

Without keys the app's progress goes back; with keys, copies of these records are written for this
app alone. Both are operations like those on dead letters: one at a time, written down with who,
when and why, and continued by anybody if their process is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from redrive.dead.copies import target
from redrive.dead.desk import (
    Desk,
    Means,
    TakenOverError,
    UnderWayError,
    check_alone,
    resumable,
)
from redrive.dead.filters import Filter, Place, fits_key
from redrive.dead.operations import Operation, new_id
from redrive.dead.parked import ahead
from redrive.dead.running import OnProgress, Running
from redrive.envelope import parse
from redrive.errors import ConfigurationError, EnvelopeError, RedriveError
from redrive.kafka.transactional_producer import FencedError
from redrive.numbers import counted
from redrive.ports import Position
from redrive.record import TopicPartition
from redrive.rewind import targets
from redrive.rewind.copying import Copying
from redrive.rewind.going_back import GoingBack, SoleAccess
from redrive.rewind.old_records import OldRecords
from redrive.rewind.plan import RewindPlan
from redrive.rewind.targets import Covered, Span, Targets, TimedLog, Where

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letters import DeadLetters
    from redrive.delivery.store import KnownIds


_OPTIONS: Final = {"topics", "positions", "keys", "forget"}
"""What is kept of how a rewind is done."""


@dataclass(frozen=True)
class Tools:
    """What is needed of Kafka and the database."""

    log: TimedLog
    means: Means
    access: SoleAccess
    in_the_way: Callable[[], str]
    """Who has to be stopped before progress can go back; empty: nobody is known."""
    ids: KnownIds | None = None
    """The app's inbox, if it has one."""


class Rewinder:
    """Handles old records of one app again."""

    def __init__(self, letters: DeadLetters, tools: Tools, by: str) -> None:
        if letters.app is None:
            raise ConfigurationError("`redrive rewind` needs an app")
        self._letters = letters
        self._app: App = letters.app
        self._tools = tools
        self._by = by

    def plan(self, where: Where, *, keys: Sequence[str] = (), forget: bool = False) -> RewindPlan:
        """What would be done; nothing is written."""
        self._check(forget=forget)
        found = self._find(where)
        plan = RewindPlan(found.spans, found.notes, tuple(keys), forget)
        if keys:
            plan.no_topic = self._no_topic()
        self._count(plan)
        if self._tools.ids is None:
            plan.parked = self._parked(found.spans, keys)
        if not keys:
            plan.in_the_way = self._tools.in_the_way()
        return plan

    def rewind(
        self,
        where: Where,
        *,
        keys: Sequence[str] = (),
        forget: bool = False,
        why: str = "",
        progress: OnProgress = lambda _operation, _fate: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Operation:
        """Do it; with keys, returns when it is done, was stopped, or somebody paused it."""
        self._check(forget=forget)
        spans = self._find(where).spans
        if not keys:
            # A worker that is stopping commits once more.
            self._tools.access.wait_for_workers()
            spans = self._find(where).spans
            # Before anything is fenced off: a run on Spark may be at work.
            self._going_back(spans).check()
        operation = self._new(spans, keys, forget=forget, why=why)
        check_alone(self._letters.known(), operation, self._letters.named)
        progress(operation, None)  # from here on it is written down how it stands
        desk = Desk.begin(self._letters, self._tools.means, operation)
        return self._run(desk, operation, spans, progress, stopping)

    def resume(
        self,
        name: str,
        *,
        progress: OnProgress = lambda _operation, _fate: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Operation:
        """Go on with a rewind, whoever has begun it; whoever runs it is fenced off."""
        # Taking over would fence off another one that runs.
        found = resumable(self._letters.known(), name, self._letters.named)
        if found.kind != "rewind":
            raise UnderWayError(
                f"{name} is not a rewind: `{found.resumed_by(self._letters.named)}` continues it"
            )
        self._check_same(found)
        desk = Desk(self._letters, self._tools.means)
        operation = resumable(desk.known, name, self._letters.named)
        return self._run(desk, operation, _spans(operation), progress, stopping)

    def _check_same(self, operation: Operation) -> None:
        """Raise ConfigurationError for what this app, or this version, would do otherwise."""
        if unknown := set(operation.options) - _OPTIONS:
            raise ConfigurationError(
                f"{operation.id} was begun with {', '.join(sorted(unknown))}, which this version of"
                " redrive does not know: use the version that has begun it"
            )
        if gone := sorted(set(operation.options["topics"]) - set(self._app.handlers)):
            raise ConfigurationError(
                f"{operation.id} is about {', '.join(gone)}, for which the app has no handler any"
                " more: use the code that it was begun with, or cancel it"
            )

    # One of the two ways

    def _run(
        self,
        desk: Desk,
        operation: Operation,
        spans: Sequence[Span],
        progress: OnProgress,
        stopping: Callable[[], bool],
    ) -> Operation:
        if not operation.options.get("keys"):
            return self._go_back(desk, operation, spans, stopping)
        copying = self._copying(operation, spans)
        return Running(desk, operation, copying, progress=progress, stopping=stopping).run()

    def _go_back(
        self,
        desk: Desk,
        operation: Operation,
        spans: Sequence[Span],
        stopping: Callable[[], bool],
    ) -> Operation:
        before = operation.counts.get("forgotten", 0)
        counts: dict[str, int] = {"forgotten": before} if before else {}
        operation = desk.commit([], operation.change(status="running", said=""))
        try:
            self._put_back(desk, operation, spans, counts, stopping)
        except TakenOverError:
            raise
        except (_StoppedError, RedriveError) as error:
            gone = counts.get("forgotten", 0)
            kept = operation.change(counts={"forgotten": gone} if gone else {})
            if isinstance(error, _StoppedError):
                return desk.commit([], kept.change(status="paused", said="by a signal"))
            said = str(error)
            if gone:
                said += f"; {counted(gone, 'id')} had been forgotten by then"
            desk.commit([], kept.change(status="cancelled", said=said))
            raise
        done = operation.change(status="done", cursor=dict(operation.ends), counts=counts)
        try:
            return desk.commit([], done)
        except FencedError:
            raise TakenOverError(
                f"somebody took over {operation.id} just as it finished: the progress of"
                f" {self._app.name} is back, even if `redrive dead jobs` says otherwise"
            ) from None

    def _put_back(
        self,
        desk: Desk,
        operation: Operation,
        spans: Sequence[Span],
        counts: dict[str, int],
        stopping: Callable[[], bool],
    ) -> None:
        """Count, forget, commit; nobody stops it any more once its progress is committed."""
        going, forget = self._going_back(spans), bool(operation.options.get("forget"))
        plan = RewindPlan(list(spans), forget=forget)
        self._count(plan, stopping)
        counts |= {"rewound": plan.handled, **plan.left_out}
        if going.is_back():
            return
        going.fence_off()
        for forgotten in going.forget() if forget else ():
            counts["forgotten"] = counts.get("forgotten", 0) + forgotten
            _check_goes_on(stopping)
        _check_goes_on(stopping)
        self._check_still_mine(desk, operation.change(counts=counts))
        going.commit()

    def _check_still_mine(self, desk: Desk, operation: Operation) -> None:
        """See that nobody has paused or cancelled it: from here on it happens."""
        try:
            desk.commit([], operation)
        except FencedError:
            raise TakenOverError(
                f"somebody else works on the operations of {self._app.name} now: its progress was"
                f" not put back; `redrive dead jobs` shows how {operation.id} stands"
            ) from None

    def _going_back(self, spans: Sequence[Span]) -> GoingBack:
        return GoingBack(self._app.name, spans, self._records(), self._tools.access)

    def _copying(self, operation: Operation, spans: Sequence[Span]) -> Copying:
        return Copying(
            self._app,
            self._records(),
            spans,
            self._tools.means.clock,
            keys=tuple(operation.options["keys"]),
            forget=bool(operation.options.get("forget")),
            no_topic=self._no_topic(),
        )

    def _no_topic(self) -> set[str]:
        """The source topics for whose copies there is no topic."""
        app, log = self._app, self._tools.log
        return {topic for topic in app.handlers if not log.partitions(target(app, topic))}

    # What both need

    def _check(self, *, forget: bool) -> None:
        if forget and not self._app.guarantee.inbox:
            raise ConfigurationError(
                f'the app "{self._app.name}" has no inbox that could forget anything (its delivery'
                f" is {self._app.delivery}): leave --forget out"
            )

    def _find(self, where: Where) -> Targets:
        return targets.find(self._app, where, self._tools.log, self._tools.access.seen)

    def _records(self) -> OldRecords:
        return OldRecords(self._app, self._tools.log, self._tools.ids)

    def _count(self, plan: RewindPlan, stopping: Callable[[], bool] = lambda: False) -> None:
        records = self._records()
        for span in plan.spans:
            _check_goes_on(stopping)
            for old in records.of(span, plan.keys):
                plan.add(old)
                _check_goes_on(stopping)

    def _parked(self, spans: Sequence[Span], keys: Sequence[str]) -> int:
        """How many records in range wait in delay topics now."""
        covered = {span.place: Covered(span) for span in spans}
        topics = [*self._app.waiting_topics(self._tools.log.names())]
        found = 0
        for record in ahead(topics, self._tools.log, self._tools.access.seen):
            try:
                envelope = parse(record.headers)
            except EnvelopeError:
                continue
            place = TopicPartition(envelope.origin_topic, envelope.origin_partition)
            if place in covered and fits_key(record, keys):
                found += covered[place](envelope.origin_offset)
        return found

    def _new(
        self, spans: Sequence[Span], keys: Sequence[str], *, forget: bool, why: str
    ) -> Operation:
        now = self._tools.means.clock.now()
        ids = self._records().standings.scope.topic_ids
        places = tuple(f"{span.place}@{span.start}" for span in spans)
        options: dict[str, Any] = {
            "topics": {span.place.topic: ids[span.place.topic] for span in spans},
            "positions": {str(span.place): list(span.position) for span in spans},
            **({"keys": list(keys)} if keys else {}),
            **({"forget": True} if forget else {}),
        }
        return Operation(
            id=new_id("rewind", now),
            kind="rewind",
            by=self._by,
            at=now,
            why=why,
            filter=Filter(places=places, keys=tuple(keys)).as_data(),
            options=options,
            ends={str(span.place): span.end for span in spans},
            cursor={str(span.place): span.start for span in spans},
        )


class _StoppedError(Exception):
    """Somebody wants it to stop, and nothing was put back yet."""


def _check_goes_on(stopping: Callable[[], bool]) -> None:
    if stopping():
        raise _StoppedError


def _spans(operation: Operation) -> list[Span]:
    """What an operation is about, as it was when it began."""
    positions: Mapping[str, Any] = operation.options["positions"]
    spans = []
    for written in operation.letters.places:
        topic, partition, start = Place.of(written)
        place = TopicPartition(topic, partition)
        spans.append(Span(place, start or 0, Position(*positions[str(place)])))
    return spans
