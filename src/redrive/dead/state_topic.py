"""The state topic: what was done about dead letters, compacted by letter and by operation.

It is the only place where that is known. Keys and values are text, so that any Kafka tool shows
them: `letter/<topic id>/<partition>/<offset>` and `operation/<id>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from redrive.app import state_topic_of
from redrive.dead.operations import Operation
from redrive.dead.states import Mark, Marks
from redrive.ports import Log
from redrive.record import Record, TopicPartition, Write

OPERATIONS_KEPT: Final = 20
"""Operations that a letter's mark names, the last ones: it must not grow."""
_LETTER: Final = re.compile(r"letter/([^/]+)/([0-9]+)/([0-9]+)")
_OPERATION: Final = "operation/"


class Known(NamedTuple):
    """What the state topic says."""

    marks: Marks
    operations: dict[str, Operation]

    @property
    def unfinished(self) -> list[Operation]:
        """Operations that can go on, the oldest first."""
        found = [each for each in self.operations.values() if each.unfinished]
        return sorted(found, key=lambda each: each.at)


def read_state(log: Log, dead_topic: str) -> Known:
    """Everything that is known about a dead topic; nothing, if it has no state topic yet."""
    known, topic = Known(Marks(), {}), state_topic_of(dead_topic)
    partitions = log.partitions(topic)
    if not partitions:
        return known
    # Offsets of a topic that was deleted and created again mean other letters.
    topic_id = log.topic_id(dead_topic)
    for number in range(partitions):
        place = TopicPartition(topic, number)
        for batch in log.batches(place, *log.bounds(place)):
            for record in batch:
                _take(record, topic_id, known)
    return known


def mark_write(dead_topic: str, topic_id: str, letter: Record, mark: Mark, by: Operation) -> Write:
    """The message that says what was done about a letter."""
    value = {
        "state": mark.state,
        "operations": list(mark.operations),
        "by": by.by,
        "at": by.updated or by.at,
        "why": by.why,
    }
    key = f"letter/{topic_id}/{letter.partition}/{letter.offset}"
    return _write(dead_topic, key, value)


def operation_write(dead_topic: str, operation: Operation) -> Write:
    """The message that says how an operation stands."""
    return _write(dead_topic, f"{_OPERATION}{operation.id}", operation.as_data())


def marked(before: Mark | None, state: str, operation: str) -> Mark:
    """The mark of a letter after one more operation."""
    earlier: Sequence[str] = () if before is None else before.operations
    return Mark(state, (*earlier, operation)[-OPERATIONS_KEPT:])  # type: ignore[arg-type]  # -- a state


def _write(dead_topic: str, key: str, value: dict[str, Any]) -> Write:
    data = json.dumps(value, separators=(",", ":")).encode()
    return Write(state_topic_of(dead_topic), key.encode(), data, partition=0)


def _take(record: Record, topic_id: str, known: Known) -> None:
    """Take what one message says; what redrive did not write is left alone."""
    key = (record.key or b"").decode(errors="replace")
    try:
        data = json.loads(record.value or b"null")
        if not isinstance(data, dict):
            return
        if key.startswith(_OPERATION):
            operation = Operation.of(data)
            known.operations[operation.id] = operation
        elif (found := _LETTER.fullmatch(key)) is not None and found[1] == topic_id:
            mark = Mark(data["state"], tuple(data["operations"]))
            known.marks.add(int(found[2]), int(found[3]), mark)
    except (ValueError, KeyError, TypeError):
        return
