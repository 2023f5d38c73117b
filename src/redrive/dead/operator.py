"""Operator: does something about dead letters, in somebody's name."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from redrive.dead.copies import Replay
from redrive.dead.desk import Desk, Means, TakenOverError, UnderWayError, resumable
from redrive.dead.filters import Place
from redrive.dead.fixing import Fix
from redrive.dead.operations import Kind, Operation, Status, new_id
from redrive.dead.running import OnProgress, Running
from redrive.dead.scan import Planned, bounds_of, existing, of_plan, with_offset
from redrive.dead.selection import ReplayPlan, Selection
from redrive.dead.shards import RunningInShards, RunShards, ShardDesk, goes_on
from redrive.dead.standing import Standings
from redrive.dead.watching import Watch
from redrive.errors import ConfigurationError
from redrive.loading import load_object

if TYPE_CHECKING:
    from redrive.dead.filters import Filter
    from redrive.dead.letters import DeadLetters


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """How letters are replayed."""

    fix: str | None = None
    """`module:function`, which makes a new value of a record."""
    edited: bytes | None = None
    """A new value for all that are meant, which should be one."""
    again: bool = False
    """Also those that were replayed before."""
    rate: float | None = None
    """Letters per second, at most."""
    ramp: tuple[int, ...] = ()
    """This many first, then this many more: each step has to be handled before the next one."""
    stop_above: float | None = None
    """The share of letters that may fail again before the job stops by itself."""
    to: tuple[str, ...] = ()
    """The topics that other consumers' letters may be written to."""

    def as_data(self) -> dict[str, Any]:
        """As it is written down with its operation."""
        data = {name: value for name, value in asdict(self).items() if _is_given(value)}
        if self.edited is not None:
            data["edited"] = b64encode(self.edited).decode()
        return data

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ReplayOptions:
        """And back. What this version does not know is not left out: it would do something else."""
        if unknown := set(data) - {field.name for field in fields(cls)}:
            raise ConfigurationError(
                f"it was begun with {', '.join(sorted(unknown))}, which this version of redrive"
                " does not know: use the version that has begun it"
            )
        given: dict[str, Any] = {
            name: tuple(each) if isinstance(each, list) else each for name, each in data.items()
        }
        if "edited" in given:
            given["edited"] = b64decode(given["edited"])
        return cls(**given)


class Operator:
    """Replays letters, and discards them; one operation at a time per dead topic."""

    def __init__(self, letters: DeadLetters, means: Means, by: str) -> None:
        self.letters = letters
        self.means = means
        self._by = by

    def plan(self, wanted: Filter, options: ReplayOptions | None = None) -> ReplayPlan:
        """What a replay would do; nothing is written."""
        selection = self._selection(wanted, options or ReplayOptions(), "plan")
        plan = selection.plan(self.letters.known())
        app = self.letters.app
        if app is not None and app.guarantee.inbox and selection.standings is None:
            plan.unknown = (
                "the app's inbox was not asked which of them were done meanwhile, as no database is"
                " configured: it drops those"
            )
        return plan

    def plan_discard(self, wanted: Filter) -> ReplayPlan:
        """What discarding would do; nothing is written."""
        selection = Selection(self.letters, wanted, self.means.clock)
        return selection.plan(self.letters.known())

    def replay(
        self,
        wanted: Filter,
        options: ReplayOptions | None = None,
        *,
        why: str = "",
        progress: OnProgress = lambda _operation, _fate: None,
        stopping: Callable[[], bool | str] = lambda: False,
        run_shards: RunShards | None = None,
        planned: Planned | None = None,
    ) -> Operation:
        """Replay letters; returns when it is done, was stopped, or somebody paused it.

        With `run_shards`, the partitions of the dead topic are worked on side by side, by others.
        With `planned`, what a plan has looked at, letters that died since are left alone, those
        that retention has deleted since are counted, and those of another topic that has taken the
        name since are refused.
        """
        chosen = options or ReplayOptions()
        if self.letters.app is None:
            _check_for_others(chosen)
        operation = self._new("replay", wanted, why, planned).change(options=chosen.as_data())
        # Before anything is fenced off: mistakes in the options, and somebody who is at work.
        selection = self._selection(wanted, chosen, operation.id)
        if run_shards is not None:
            check_shards(chosen)
        watch = Watch(self.letters, operation, self.means.progress)
        if chosen.ramp or chosen.stop_above is not None:
            watch.look()  # whoever may not do that hears it before anything is written
        desk = self._begin(operation)
        if run_shards is not None:
            return RunningInShards(desk, operation, run_shards, stopping=stopping).run()
        return Running(
            desk, operation, selection, watch=watch, progress=progress, stopping=stopping
        ).run()

    def run_shard(self, name: str, run: str, partition: int) -> None:
        """Do what is left of one shard; nothing, if the operation goes on elsewhere."""
        try:
            desk = ShardDesk(self.letters, self.means, name, run, partition)
        except TakenOverError:
            return
        shard = desk.shard
        if shard.status == "done":
            return
        try:
            Running(desk, shard, self._selection_of(shard)).run()
        except TakenOverError:
            # By another process for the same shard: that one goes on, and this one has failed.
            if goes_on(self.letters.known(), name, run):
                raise

    def discard(
        self,
        wanted: Filter,
        why: str,
        *,
        progress: OnProgress = lambda _operation, _fate: None,
        stopping: Callable[[], bool | str] = lambda: False,
        planned: Planned | None = None,
    ) -> Operation:
        """Mark letters as discarded; nothing is removed. `planned` is that of `replay`."""
        if not why.strip():
            raise ConfigurationError("--reason is empty: say why these letters need not be handled")
        operation = self._new("discard", wanted, why, planned)
        desk = self._begin(operation)
        selection = Selection(self.letters, wanted, self.means.clock)
        return Running(desk, operation, selection, progress=progress, stopping=stopping).run()

    def resume(
        self,
        name: str,
        *,
        progress: OnProgress = lambda _operation, _fate: None,
        stopping: Callable[[], bool | str] = lambda: False,
        run_shards: RunShards | None = None,
    ) -> Operation:
        """Go on with an operation, whoever has begun it; whoever runs it is fenced off."""
        operation = resumable(self.letters.known(), name, self.letters.named)
        if operation.kind == "rewind":
            raise UnderWayError(
                f"{name} is a rewind: continue it with `{operation.resumed_by(self.letters.named)}`"
            )
        self._check_same(operation)
        if run_shards is not None:
            check_shards(ReplayOptions.of(operation.options))
        # Before anything is fenced off: a fix that is not installed here.
        selection = self._selection_of(operation)
        desk = Desk(self.letters, self.means)
        operation = resumable(desk.known, name, self.letters.named)
        desk.check_topic(operation)
        if run_shards is not None:
            return RunningInShards(desk, operation, run_shards, stopping=stopping).run()
        return Running(
            desk,
            operation,
            selection,
            progress=progress,
            stopping=stopping,
            said=f"resumed by {self._by}",
        ).run()

    def pause(self, name: str) -> Operation:
        """Pause an operation, whoever runs it."""
        return self._put(name, "paused")

    def cancel(self, name: str) -> Operation:
        """End an operation; what it has done stays done."""
        return self._put(name, "cancelled")

    def _put(self, name: str, status: Status) -> Operation:
        # Taking over would fence off another one that runs.
        resumable(self.letters.known(), name, self.letters.named)
        return Desk(self.letters, self.means).put(name, status, self._by)

    def _check_same(self, operation: Operation) -> None:
        """Raise UnderWayError if the letters would be read as others than they were at its start.

        It would then leave them out, one by one, and be done.
        """
        app = self.letters.app
        mine = "" if app is None else app.name
        if operation.app not in {None, mine}:
            begun = f"for the app {operation.app}" if operation.app else "without an app"
            raise UnderWayError(
                f"{operation.id} was begun {begun}, not {f'for {mine}' if mine else 'without one'}:"
                " use the same app or --topic as then"
            )
        if operation.dialect != self.letters.dialect_name:
            raise UnderWayError(
                f"{operation.id} was begun with --dialect {operation.dialect}: continue it with the"
                " same dialect"
            )

    def watch(self, name: str) -> tuple[Operation, Watch]:
        """A replay, whoever did it, and where one sees what became of its copies."""
        operation = next((each for each in self.operations() if each.id == name), None)
        if operation is None:
            raise UnderWayError(f"there is no operation {name}")
        if operation.kind != "replay" or self.letters.app is None:
            raise ConfigurationError(
                f"{name}: only of a replay for an app can be seen what became of the copies"
            )
        return operation, Watch(self.letters, operation, self.means.progress)

    def operations(self) -> list[Operation]:
        """All operations, the newest first."""
        known = self.letters.known()
        found = map(known.standing, known.operations.values())
        return sorted(found, key=lambda each: (each.at, each.id), reverse=True)

    def _begin(self, operation: Operation) -> Desk:
        desk = Desk.begin(self.letters, self.means, operation)
        desk.check_topic(operation)
        return desk

    def _new(self, kind: Kind, wanted: Filter, why: str, planned: Planned | None) -> Operation:
        now, topic, app = self.means.clock.now(), self.letters.topic, self.letters.app
        # Before its offsets: those of a topic that is recreated meanwhile are then refused.
        topic_id = self.letters.log.topic_id(topic)
        if planned is not None and planned.topic_id != topic_id:
            raise UnderWayError(
                f"{topic} has been recreated since somebody looked at these letters: what is at"
                " their offsets now are others; look again, and start again"
            )
        bounds = bounds_of(self.letters.log, topic)
        if planned is not None and planned.bounds is not None:
            bounds = of_plan(bounds, planned.bounds)
        if wanted.is_one_letter:
            place = Place.of(wanted.places[0])
            bounds = with_offset(bounds, place) if place.topic == topic else bounds
        return Operation(
            id=new_id(kind, now),
            kind=kind,
            by=self._by,
            at=now,
            why=why,
            app="" if app is None else app.name,
            dialect=self.letters.dialect_name,
            topic_id=topic_id,
            filter=wanted.as_data(),
            ends={str(partition): end for partition, (_, end) in bounds.items()},
            cursor={str(partition): start for partition, (start, _) in bounds.items()},
        )

    def _selection_of(self, operation: Operation) -> Selection:
        if operation.kind == "discard":
            return Selection(self.letters, operation.letters, self.means.clock)
        return self._selection(operation.letters, ReplayOptions.of(operation.options), operation.id)

    def _selection(self, wanted: Filter, options: ReplayOptions, operation: str) -> Selection:
        app, log = self.letters.app, self.letters.log
        topics = [*options.to]
        if app is not None:
            topics += [*app.handlers, *app.delay_topics]
        replay = Replay(operation, app, existing(log, topics), options.to)
        fix = _fix(options, wanted)
        ids = self.means.ids
        standings = None if app is None or ids is None else Standings(app, log, ids)
        return Selection(
            self.letters, wanted, self.means.clock, replay, options.again, fix, standings
        )


def _check_for_others(options: ReplayOptions) -> None:
    """Raise ConfigurationError for what cannot be done with other consumers' letters."""
    for name, value in (("--ramp", options.ramp), ("--stop-above", options.stop_above)):
        if _is_given(value):
            raise ConfigurationError(
                f"{name} needs an app: redrive cannot see what becomes of other consumers' letters"
            )
    if not options.to:
        raise ConfigurationError(
            "--to is missing: other consumers' letters go back to their own topics, and only to"
            " those that --to allows; run without --yes to see which"
        )


def check_shards(options: ReplayOptions) -> None:
    """Raise ConfigurationError if that cannot be done by several processes at once."""
    given = {"--rate": options.rate, "--ramp": options.ramp, "--stop-above": options.stop_above}
    problems = [
        f"{name} needs one process that does it all: leave it out, or use --engine local"
        for name, value in given.items()
        if _is_given(value)
    ]
    if problems:
        raise ConfigurationError(problems)


def _is_given(value: object) -> bool:
    """0 % is a share."""
    return value is not None and value is not False and value != ()


def _fix(options: ReplayOptions, wanted: Filter) -> Fix | None:
    if options.edited is not None:
        edited = options.edited
        if not wanted.is_one_letter:
            raise ConfigurationError(
                "an edited value is for one letter: name it by its topic, partition and offset"
            )
        return lambda _record: edited
    return fix_named(options.fix)


FIX: Final = "a fix, which is a function of a record"


def fix_named(name: str | None) -> Fix | None:
    """The function of that name, `module:function`."""
    if name is None:
        return None
    found = load_object(name, FIX)
    if not callable(found):
        raise ConfigurationError(f"{name} is not a function of a record")
    made: Fix = found
    return made
