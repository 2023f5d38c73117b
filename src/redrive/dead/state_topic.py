"""The state topic: what was done about dead letters, compacted by letter and by operation.

It is the only place where that is known. Keys and values are text, so that any Kafka tool shows
them: `letter/<topic id>/<partition>/<offset>`, `operation/<id>` and `shard/<id>/<partition>`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, get_args

from redrive.app import state_topic_of
from redrive.dead.operations import DONE, Operation
from redrive.dead.states import Mark, Marked, Marks
from redrive.errors import ConfigurationError
from redrive.ports import Log
from redrive.record import Record, TopicPartition, Write
from redrive.tuning import OPERATIONS_KEPT

_LETTER: Final = re.compile(r"letter/([^/]+)/([0-9]{1,10})/([0-9]{1,19})")
_OPERATION: Final = "operation/"
_SHARD: Final = re.compile(r"shard/([^/]+)/([0-9]{1,10})")
# Kafka's partitions have 32 bits, its offsets 64; Python's calendar ends with the year 9999.
_PARTITIONS: Final = range(1 << 31)
_OFFSETS: Final = range(1 << 63)
_TIMES: Final = range(253_402_300_800_000)
_TEXTS: Final = ("by", "why", "status", "said", "topic_id", "run")
_NUMBERS: Final = ("ends", "cursor", "counts")


class Known(NamedTuple):
    """What the state topic says."""

    marks: Marks
    operations: dict[str, Operation]
    before: dict[str, Marks]
    """Marks of topics that had the dead topic's name before it, by their ids: they mean nothing."""
    shards: dict[tuple[str, int], Operation]
    """Parts of operations, by partition; for each the last one that was written."""

    def standing(self, operation: Operation) -> Operation:
        """How an operation stands, with what its shards have done since."""
        if not operation.run:
            return operation
        counts, cursor = Counter(operation.counts), dict(operation.cursor)
        for (name, partition), shard in [*self.shards.items()]:  # others may be reading
            if (name, shard.run) == (operation.id, operation.run):
                counts.update(shard.counts)
                cursor[str(partition)] = shard.cursor[str(partition)]
        return operation.change(counts=dict(counts), cursor=cursor, run="", closed=False)

    @property
    def unfinished(self) -> list[Operation]:
        """Operations that can go on, the oldest first."""
        found = [each for each in self.operations.values() if each.unfinished]
        return sorted(found, key=lambda each: each.at)


class StateReader:
    """What the state topic says, kept up to date: each message is read once."""

    def __init__(self, log: Log, dead_topic: str) -> None:
        self._log = log
        self._dead_topic = dead_topic
        self._topic = state_topic_of(dead_topic)
        self._ids = ("", "")
        self._read: dict[int, int] = {}
        self.known = Known(Marks(), {}, {}, {})

    def refresh(self) -> list[tuple[int, int]]:
        """Read what is new; partitions and offsets of the letters that it is about."""
        partitions = self._log.partitions(self._topic)
        if not partitions:
            return []
        # Offsets of a topic that was deleted and recreated mean other letters.
        topic_id = self._log.topic_id(self._dead_topic)
        ids = (topic_id, self._log.topic_id(self._topic))
        if ids != self._ids:
            self._ids, self._read, self.known = ids, {}, Known(Marks(), {}, {}, {})
        marked: list[tuple[int, int]] = []
        for number in range(partitions):
            place = TopicPartition(self._topic, number)
            first, end = self._log.bounds(place)
            for batch in self._log.batches(place, max(first, self._read.get(number, 0)), end):
                for record in batch:
                    letter = _take(record, topic_id, self.known)
                    if letter is not None:
                        marked.append(letter)
            self._read[number] = end
        return marked


def read_state(log: Log, dead_topic: str) -> Known:
    """Everything that is known about a dead topic; nothing, if it has no state topic yet."""
    reader = StateReader(log, dead_topic)
    reader.refresh()
    return reader.known


def mark_write(dead_topic: str, topic_id: str, letter: Record, mark: Mark, by: Operation) -> Write:
    """The message that says what was done about a letter."""
    value = {
        "state": mark.state,
        "operations": list(mark.operations),
        "by": by.by,
        "at": by.updated or by.at,
        "why": by.why,
    }
    return _write(dead_topic, _key(topic_id, letter.partition, letter.offset), value)


def removals(
    dead_topic: str, topic_id: str, known: Known, firsts: Mapping[int, int]
) -> Iterator[Write]:
    """What removes marks of letters that are gone; `firsts` are the first offsets that are there.

    Those that retention has deleted, and those of a topic that was deleted and recreated. Also
    shards of runs that are over: what they have done is in their operation since that was closed.
    """
    for (name, partition), shard in known.shards.items():
        if name not in known.operations or known.operations[name].run != shard.run:
            yield _write(dead_topic, _shard_key(name, partition), None)
    for old, marks in known.before.items():
        for partition in marks.partitions:
            for offset in marks.before(partition):
                yield _write(dead_topic, _key(old, partition, offset), None)
    for partition, first in firsts.items():
        for offset in known.marks.before(partition, first):
            yield _write(dead_topic, _key(topic_id, partition, offset), None)


def operation_write(dead_topic: str, operation: Operation) -> Write:
    """The message that says how an operation stands."""
    return _write(dead_topic, f"{_OPERATION}{operation.id}", operation.as_data())


def shard_write(dead_topic: str, shard: Operation, partition: int) -> Write:
    """The message that says how one shard of an operation stands."""
    return _write(dead_topic, _shard_key(shard.id, partition), shard.as_data())


def marked(before: Mark | None, state: str, operation: str) -> Mark:
    """The mark of a letter after one more operation."""
    earlier: Sequence[str] = () if before is None else before.operations
    return Mark(state, (*earlier, operation)[-OPERATIONS_KEPT:])  # type: ignore[arg-type]  # -- a state


def _key(topic_id: str, partition: int, offset: int) -> str:
    return f"letter/{topic_id}/{partition}/{offset}"


def _shard_key(name: str, partition: int) -> str:
    return f"shard/{name}/{partition}"


def _write(dead_topic: str, key: str, value: dict[str, Any] | None) -> Write:
    data = None if value is None else json.dumps(value, separators=(",", ":")).encode()
    return Write(state_topic_of(dead_topic), key.encode(), data, partition=0)


def _take(record: Record, topic_id: str, known: Known) -> tuple[int, int] | None:
    """Take what one message says; what redrive did not write is left alone.

    Returns the place of the letter that it is about, if it is about one.
    """
    key = (record.key or b"").decode(errors="replace")
    # Whatever cannot be read: also what is nested too deep.
    with suppress(ValueError, KeyError, TypeError, RecursionError, ConfigurationError):
        data = json.loads(record.value or b"null")
        if (found := _LETTER.fullmatch(key)) is not None:
            place = _number(found[2], _PARTITIONS), _number(found[3], _OFFSETS)
            mark = None if data is None else _mark(data)
            mine = found[1] == topic_id
            marks = known.marks if mine else known.before.setdefault(found[1], Marks())
            marks.add(*place, mark)
            return place if mine else None
        if key.startswith(_OPERATION):
            name = key.removeprefix(_OPERATION)
            known.operations[name] = _operation(name, data)
        elif (found := _SHARD.fullmatch(key)) is not None:
            _take_shard(found[1], _number(found[2], _PARTITIONS), data, known)
    return None


def _take_shard(name: str, partition: int, data: Any, known: Known) -> None:
    if data is None:
        known.shards.pop((name, partition), None)
        return
    shard = _operation(name, data)
    if str(partition) not in shard.cursor:
        raise ValueError(name)
    known.shards[name, partition] = shard


def _number(text: str, allowed: range) -> int:
    if (number := int(text)) not in allowed:
        raise ValueError(text)
    return number


def _mark(data: Any) -> Mark:
    """A mark, if it is one: a word that nobody knows would end whoever counts them."""
    state, operations = data["state"], data["operations"]
    names = isinstance(operations, list) and all(isinstance(each, str) for each in operations)
    if state not in get_args(Marked) or not names:
        raise ValueError(state)
    return Mark(state, tuple(operations))


def _operation(name: str, data: Any) -> Operation:
    """An operation, if it is one that can be shown, counted and gone on with."""
    if not isinstance(data, dict):
        raise TypeError(name)
    found = Operation.of(data)
    numbers = [getattr(found, field) for field in _NUMBERS]
    if (
        found.id != name
        or found.kind not in DONE
        or not all(isinstance(getattr(found, field), str) for field in _TEXTS)
        or not all(type(each) is int and each in _TIMES for each in (found.at, found.updated))
        or not all(isinstance(each, dict) for each in (found.filter, found.options, *numbers))
        or not all(
            type(each) is int and each in _OFFSETS for one in numbers for each in one.values()
        )
    ):
        raise ValueError(name)
    _ = found.letters  # raises if its filter is none
    return found
