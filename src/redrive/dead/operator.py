"""Operator: does something about dead letters, in somebody's name."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from redrive.dead.copies import Replay
from redrive.dead.desk import Desk, Means, UnderWayError, check_alone, unfinished
from redrive.dead.fixing import Fix
from redrive.dead.operations import Kind, Operation, new_id
from redrive.dead.running import Progress, Running
from redrive.dead.scan import bounds_of
from redrive.dead.selection import Plan, Selection
from redrive.errors import ConfigurationError
from redrive.loading import load_object

if TYPE_CHECKING:
    from redrive.dead.filters import Filter
    from redrive.dead.letters import DeadLetters


@dataclass(frozen=True, kw_only=True)
class Options:
    """How letters are driven again."""

    fix: str | None = None
    """`module:function`, which makes a new value of a record."""
    edited: bytes | None = None
    """A new value for all that are meant, which should be one."""
    again: bool = False
    """Also those that were driven again before."""
    rate: float | None = None
    """Letters per second, at most."""
    ramp: tuple[int, ...] = ()
    """So many first, then so many more: each step has to be handled before the next one."""
    stop_above: float | None = None
    """The share of letters that may fail again before the job stops by itself."""
    to: tuple[str, ...] = ()
    """The topics that letters of others may be written to."""

    def as_data(self) -> dict[str, Any]:
        """As it is written down with its operation."""
        data = {
            name: value for name, value in asdict(self).items() if value not in (None, (), False)
        }
        if self.edited is not None:
            data["edited"] = b64encode(self.edited).decode()
        return data

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Options:
        """And back."""
        given: dict[str, Any] = {
            name: tuple(each) if isinstance(each, list) else each for name, each in data.items()
        }
        if "edited" in given:
            given["edited"] = b64decode(given["edited"])
        return cls(**given)


class Operator:
    """Drives letters again, and discards them; one operation at a time per dead topic."""

    def __init__(self, letters: DeadLetters, means: Means, by: str) -> None:
        self._letters = letters
        self._means = means
        self._by = by

    def plan(self, wanted: Filter, options: Options | None = None) -> Plan:
        """What a replay would do; nothing is written."""
        return self._selection(wanted, options or Options(), "plan").plan(self._letters.known())

    def plan_discard(self, wanted: Filter) -> Plan:
        """What discarding would do; nothing is written."""
        selection = Selection(self._letters, wanted, self._means.clock)
        return selection.plan(self._letters.known())

    def replay(
        self,
        wanted: Filter,
        options: Options | None = None,
        *,
        why: str = "",
        progress: Progress = lambda _operation, _fate: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Operation:
        """Drive letters again; returns when it is done, was stopped, or somebody paused it."""
        chosen = options or Options()
        if chosen.ramp and self._letters.app is None:
            raise ConfigurationError(
                "--ramp needs an app: of others it cannot be seen when they have handled a copy"
            )
        operation = self._new("replay", wanted, why).change(options=chosen.as_data())
        # Before anything is fenced off: mistakes in the options, and somebody who is at work.
        selection = self._selection(wanted, chosen, operation.id)
        desk = self._begin(operation)
        return Running(desk, operation, selection, progress=progress, stopping=stopping).run()

    def discard(self, wanted: Filter, why: str) -> Operation:
        """Mark letters as discarded; nothing is removed."""
        if not why.strip():
            raise ConfigurationError("--reason is empty: say why these letters need not be handled")
        operation = self._new("discard", wanted, why)
        desk = self._begin(operation)
        selection = Selection(self._letters, wanted, self._means.clock)
        return Running(desk, operation, selection).run()

    def resume(
        self,
        name: str,
        *,
        progress: Progress = lambda _operation, _fate: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Operation:
        """Go on with an operation, whoever has begun it; whoever runs it is fenced off."""
        unfinished(self._letters.known(), name)
        desk = Desk(self._letters, self._means)
        operation = unfinished(desk.known, name)
        if operation.topic_id != desk.topic_id:
            raise UnderWayError(
                f"{name} is about letters of a topic {self._letters.topic} that was deleted and"
                " created again since: cancel it, and begin again"
            )
        others = [each for each in desk.known.unfinished if each.status == "running"]
        if others and others != [operation]:
            check_alone(desk.known, operation)
        options = Options.of(operation.options)
        if operation.kind == "replay":
            selection = self._selection(operation.letters, options, operation.id)
        else:
            selection = Selection(self._letters, operation.letters, self._means.clock)
        return Running(desk, operation, selection, progress=progress, stopping=stopping).run()

    def pause(self, name: str) -> Operation:
        """Pause an operation, whoever runs it."""
        unfinished(self._letters.known(), name)
        return Desk(self._letters, self._means).put(name, "paused", self._by)

    def cancel(self, name: str) -> Operation:
        """End an operation; what it has done stays done."""
        unfinished(self._letters.known(), name)
        return Desk(self._letters, self._means).put(name, "cancelled", self._by)

    def operations(self) -> list[Operation]:
        """All operations, the newest first."""
        found = self._letters.known().operations.values()
        return sorted(found, key=lambda each: (each.at, each.id), reverse=True)

    def _begin(self, operation: Operation) -> Desk:
        check_alone(self._letters.known(), operation)
        desk = Desk(self._letters, self._means)
        check_alone(desk.known, operation)
        return desk

    def _new(self, kind: Kind, wanted: Filter, why: str) -> Operation:
        now, topic = self._means.clock.now(), self._letters.topic
        bounds = bounds_of(self._letters.log, topic)
        return Operation(
            id=new_id(kind, now),
            kind=kind,
            by=self._by,
            at=now,
            why=why,
            topic_id=self._letters.log.topic_id(topic),
            filter=wanted.as_data(),
            ends={str(partition): end for partition, (_, end) in bounds.items()},
            cursor={str(partition): start for partition, (start, _) in bounds.items()},
        )

    def _selection(self, wanted: Filter, options: Options, operation: str) -> Selection:
        app, log = self._letters.app, self._letters.log
        topics = [*options.to]
        if app is not None:
            topics += [*app.handlers, *app.delay_topics]
        found = {topic: log.partitions(topic) for topic in topics}
        there = {topic: partitions for topic, partitions in found.items() if partitions}
        replay = Replay(operation, app, there, options.to)
        fix = _fix(options)
        return Selection(self._letters, wanted, self._means.clock, replay, options.again, fix)


def _fix(options: Options) -> Fix | None:
    if options.edited is not None:
        edited = options.edited
        return lambda _record: edited
    return fix_named(options.fix)


def fix_named(name: str | None) -> Fix | None:
    """The function of that name, `module:function`."""
    if name is None:
        return None
    found = load_object(name, "a fix")
    if not callable(found):
        raise ConfigurationError(f"{name} is not a function of a record")
    made: Fix = found
    return made
