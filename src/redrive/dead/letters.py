"""DeadLetters: the dead letters of one topic, with what was done about them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from redrive.dead.dialects import Dialect, dialect_named
from redrive.dead.filters import Filter, Place
from redrive.dead.groups import Group, Groups
from redrive.dead.letter import Letter
from redrive.dead.operations import Operation
from redrive.dead.scan import Found, Scan, Scanned, bounds_of
from redrive.dead.showing import Seen, Shown
from redrive.dead.state_topic import Known, read_state
from redrive.dead.stats import Stats
from redrive.dead.user_code import Calls, at_once
from redrive.errors import ConfigurationError
from redrive.kafka.errors import MissingTopicError
from redrive.loading import target_of
from redrive.ports import Log

if TYPE_CHECKING:
    from redrive.app import App


class Detail(NamedTuple):
    """One letter with all that is known of it."""

    found: Found
    seen: Seen
    operations: list[Operation]
    """What was done about it, and about the letters that it is a copy of; the oldest first."""

    @property
    def value(self) -> Shown:
        """Its value, as people may see it."""
        return self.seen.value


class DeadLetters:
    """The dead letters of one topic: an app's own, or those of any other consumer.

    Everything is read from Kafka when it is asked for; nothing is kept.
    """

    def __init__(
        self,
        log: Log,
        *,
        app: App | None = None,
        topic: str | None = None,
        dialect: str = "auto",
        masked: Sequence[str] | None = None,
        calls: Calls = at_once,
    ) -> None:
        """`masked`: the fields that are not shown, where no app says which.

        `calls`: how code of the app is called to show them.
        """
        if app is None and topic is None:
            raise ConfigurationError("name an app (shop:app), or a dead topic with --topic")
        self.log = log
        self.app = app
        self.masked = masked
        self._calls = calls
        self.topic: str = topic or (app.dead_topic if app is not None else "")
        self.dialect: Dialect | None = dialect_named(dialect)

    @property
    def dialect_name(self) -> str:
        """As a command names it."""
        return "auto" if self.dialect is None else self.dialect.name

    @property
    def named(self) -> str:
        """How a command names them: `shop:app`, or `--topic orders.DLT --dialect spring`."""
        app = [] if self.app is None else [target_of(self.app)]
        own = self.app is not None and self.topic == self.app.dead_topic
        topic = [] if own else [f"--topic {self.topic}"]
        dialect = [] if self.dialect is None else [f"--dialect {self.dialect.name}"]
        return " ".join([*app, *topic, *dialect])

    def seen(self, letter: Letter) -> Seen:
        """One of them as people may see it: whatever is shown of letters is shown by this."""
        return Seen(letter, self.app, self.masked, self._calls)

    def told(self, operation: Operation) -> Operation:
        """One of the operations on them as people may see it."""
        return operation.without_values() if self.masks else operation

    @property
    def masks(self) -> bool:
        """Whether fields of them are not shown."""
        named = self.masked if self.app is None or self.masked is not None else self.app.masked
        return bool(named)

    def known(self) -> Known:
        """What was done so far."""
        if not self.log.partitions(self.topic):
            raise MissingTopicError(self.topic)
        return read_state(self.log, self.topic)

    def scan(
        self, wanted: Filter | None = None, *, known: Known | None = None, **options: Any
    ) -> Scan:
        """All letters that fit, as a stream."""
        marks = (self.known() if known is None else known).marks
        given = {"marks": marks, "dialect": self.dialect, "see": self.seen, **options}
        return Scan(self.log, self.topic, wanted, **given)

    def groups(self, wanted: Filter | None = None) -> tuple[list[Group], Scanned]:
        """Letters by cause, the largest group first."""
        scan, groups = self.scan(wanted), Groups(self.seen)
        for letter, state, _ in scan:
            groups.add(letter, state)
        return groups.largest_first(), scan.result

    def stats(self, wanted: Filter | None = None) -> tuple[Stats, Scanned]:
        """Letters by what an operator asks first."""
        scan, stats = self.scan(wanted), Stats()
        for letter, state, _ in scan:
            stats.add(self.seen(letter), state)
        return stats, scan.result

    def some(self, wanted: Filter | None = None, limit: int = 20) -> tuple[list[Found], Scanned]:
        """The first letters that fit, partition by partition."""
        scan, found = self.scan(wanted), []
        for each in scan:
            found.append(each)
            if len(found) >= limit:
                break
        return found, scan.result

    def show(self, place: str, *, known: Known | None = None) -> Detail:
        """One letter, by its place; with what is known already, the state topic is not read."""
        known = self.known() if known is None else known
        found = self._at(place, known)
        if found is None:
            raise ConfigurationError(self._not_there(place))
        chain, current = [found], found
        while len(chain) < 100 and (earlier := self._before(current, known)) is not None:
            chain.append(current := earlier)
        ids = [name for each in reversed(chain) if each.mark for name in each.mark.operations]
        done = [known.operations[name] for name in dict.fromkeys(ids) if name in known.operations]
        return Detail(found, self.seen(found.letter), [self.told(each) for each in done])

    def export(
        self, file: TextIO, wanted: Filter | None = None, *, unmasked: bool = False
    ) -> Scanned:
        """Write letters as JSON, one object per line; masked unless `unmasked`."""
        scan, see = self.scan(wanted), Seen if unmasked else self.seen
        file.writelines(json.dumps(exported(each, see(each.letter))) + "\n" for each in scan)
        return scan.result

    def _before(self, found: Found, known: Known) -> Found | None:
        """The letter that this one is a copy of; None where its header names none."""
        place = found.letter.replay_of
        try:
            return None if place is None else self._at(place, known)
        except ConfigurationError:  # anybody can write headers
            return None

    def _at(self, place: str, known: Known) -> Found | None:
        topic, partition, offset = Place.of(place)
        if topic != self.topic or offset is None:
            return None
        start, end = bounds_of(self.log, topic).get(partition, (0, 0))
        if not start <= offset < end:
            return None
        scan = self.scan(Filter(places=(place,)), known=known)
        return next(iter(scan.partition(partition, offset, offset + 1)), None)

    def _not_there(self, place: str) -> str:
        topic, partition, offset = Place.of(place)
        if topic != self.topic:
            return (
                f"{place} is not in {self.topic}: name its own topic with --topic; if it is where a"
                f" record came from, `redrive dead list {self.named} --origin '{place}'` finds its"
                " letter"
            )
        if offset is None:
            return f"{place} is a partition: write {place}@offset"
        bounds = bounds_of(self.log, topic).get(partition)
        if bounds is None:
            return f"{place} is not there: {topic} has no partition {partition}"
        return (
            f"{place} is not there: {topic}[{partition}] has the offsets from {bounds[0]} up to"
            f" {bounds[1]}, and retention may have deleted it"
        )


def exported(found: Found, seen: Seen) -> dict[str, Any]:
    """A letter with its bytes, as text where they are, else in base64; or as it may be seen."""
    letter, record = found.letter, found.letter.record
    data = {
        **seen.as_data(),
        "state": found.state,
        "operations": list(found.mark.operations) if found.mark else [],
        "error_trace": seen.trace,
        "timestamp": record.timestamp,
    }
    if seen.masked:
        value = None if record.value is None else seen.value.text
        headers = [{"name": name, "value": value} for name, value in seen.headers]
        return {**data, "masked": True, "key": seen.key, "value": value, "headers": headers}
    return {
        **data,
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [{"name": name, **_bytes("value", value)} for name, value in letter.headers],
    }


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
