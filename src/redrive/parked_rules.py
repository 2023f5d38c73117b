"""Parked rules: what operators have said about records that wait in delay topics. Pure.

Operators only write rules; whoever owns a partition acts on its records. A copy that an operator
made would race with the run, and double the record.

- A hold: what fits it does not run when it is due, but is parked again, until the rule is ended.
- A run-now: what fits it, of what waited when it was written, is due at once. What does not fit and
  waits before it in its partition makes way: it hops on, for the time that it has left.

They are kept in one compacted topic of the app, `rule/<id>` each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from redrive.record import Record, TopicPartition, Write
from redrive.secret import MASK

if TYPE_CHECKING:
    from redrive.ports import Log

Kind = Literal["hold", "run-now"]
Status = Literal["open", "ended"]
_KEY: Final = "rule/"


@dataclass(frozen=True, kw_only=True)
class Match:
    """Which parked records are meant: those that fit all that is given; of one kind, any."""

    topics: tuple[str, ...] = ()
    """Delay topics."""
    groups: tuple[str, ...] = ()
    """The ids of causes, or how they begin."""
    ids: tuple[str, ...] = ()

    def fits(self, topic: str, group: str | None, record_id: str | None) -> bool:
        """Whether a record of that delay topic, cause and id is meant."""
        return (
            (not self.topics or topic in self.topics)
            and (not self.groups or (group or "").startswith(self.groups))
            and (not self.ids or record_id in self.ids)
        )

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups or self.ids)

    def __str__(self) -> str:
        given = (("topic", self.topics), ("group", self.groups), ("id", self.ids))
        return ", ".join(f"{kind} {' or '.join(names)}" for kind, names in given if names)

    def without_values(self) -> Match:
        """As people may see it who may not see all of the records: an id can hold what is masked.

        Groups are hashes of causes.
        """
        return replace(self, ids=(MASK,) * len(self.ids))

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Match:
        """What `asdict` has made of one.

        It fails for what this version does not know: more records would fit, perhaps all of them.
        """
        if set(data) - {*_MATCHED}:
            raise ValueError(data)
        found = cls(**{name: tuple(map(str, _checked(list, data.get(name, [])))) for name in data})
        if not found:
            raise ValueError(data)
        return found


_MATCHED: Final = tuple(each.name for each in fields(Match))


@dataclass(frozen=True, kw_only=True)
class ParkedRule:
    """One rule, with who made it, when and why."""

    id: str
    kind: Kind
    match: Match
    by: str
    at: int
    """When it was made, in milliseconds since 1970."""
    why: str = ""
    status: Status = "open"
    said: str = ""
    """Who ended it."""
    updated: int = 0
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of a run-now, by delay topic and partition: the offset after the last record it is about."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Of these topics: offsets mean nothing in one that was deleted and recreated."""

    def end_in(self, place: TopicPartition, topic_id: str | None) -> int:
        """Up to which offset a run-now opens a partition; 0: not at all."""
        if self.topic_ids.get(place.topic) != topic_id:
            return 0
        return self.ends.get(place.topic, {}).get(str(place.partition), 0)

    def change(self, **changes: Any) -> ParkedRule:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def without_values(self) -> ParkedRule:
        """As people may see it who may not see all of the records."""
        return self.change(match=self.match.without_values())

    def as_data(self) -> dict[str, Any]:
        """As it is written to its topic, and for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ParkedRule:
        """And back; what a newer version of redrive has added is left out.

        It fails for what redrive has not written: runs go by a rule, and must not end by it.
        """
        return cls(
            match=Match.of(data["match"]),
            ends={
                topic: {number: _checked(int, end) for number, end in ends.items()}
                for topic, ends in data.get("ends", {}).items()
            },
            topic_ids={
                topic: _checked(str, name) for topic, name in data.get("topic_ids", {}).items()
            },
            **{name: _checked(kind, data[name]) for name, kind in _PLAIN.items() if name in data},
        )


_PLAIN: Final[dict[str, type]] = {
    **dict.fromkeys(("id", "kind", "by", "why", "status", "said"), str),
    **dict.fromkeys(("at", "updated"), int),
}


def _checked(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not of the type {kind.__name__}")
    return value


class Said(NamedTuple):
    """What rules say about one record."""

    order: Kind | None = None
    makes_way: bool = False
    """Whether others behind it are to run now, so that it must not wait where it is."""


NOTHING: Final = Said()


def said(
    rules: Iterable[ParkedRule],
    place: TopicPartition,
    topic_id: str | None,
    offset: int,
    *,
    group: str | None,
    record_id: str | None,
) -> Said:
    """What rules say about the record at that place: of several, the newest counts."""
    order: Kind | None = None
    makes_way = False
    for rule in rules:
        opened = rule.kind == "run-now" and offset < rule.end_in(place, topic_id)
        makes_way = makes_way or opened
        if (opened or rule.kind == "hold") and rule.match.fits(place.topic, group, record_id):
            order = rule.kind
    return Said(order, makes_way)


def opened_to(rules: Iterable[ParkedRule], place: TopicPartition, topic_id: str | None) -> int:
    """Up to which offset a partition is read at once, due or not; 0: none of it."""
    ends = (rule.end_in(place, topic_id) for rule in rules if rule.kind == "run-now")
    return max(ends, default=0)


# Where they are kept


def rule_write(topic: str, rule: ParkedRule) -> Write:
    """The message that says a rule."""
    data = json.dumps(rule.as_data(), separators=(",", ":")).encode()
    return Write(topic, f"{_KEY}{rule.id}".encode(), data, partition=0)


def read_rules(log: Log, topic: str) -> dict[str, ParkedRule]:
    """All rules by id, also those that have ended; those that are open as they were made."""
    found: dict[str, ParkedRule] = {}
    if log.partitions(topic):
        place = TopicPartition(topic, 0)
        for batch in log.batches(place, *log.bounds(place)):
            for record in batch:
                _take(record, found)
    # Not sorted by time: that is of operators' clocks. A rule that is open was written once.
    return found


def open_rules(rules: Mapping[str, ParkedRule]) -> tuple[ParkedRule, ...]:
    """Those that runs go by, oldest first."""
    return tuple(rule for rule in rules.values() if rule.status == "open")


def left_behind(
    app: str, was: str, rules: Mapping[str, ParkedRule], *, masked: bool = False
) -> str:
    """What is said of holds that were made under an app's old name; empty if there are none."""
    holds = [rule for rule in open_rules(rules) if rule.kind == "hold"]
    if not holds:
        return ""
    matches = [rule.match.without_values() if masked else rule.match for rule in holds]
    named = "; ".join(map(str, matches))
    return (
        f'holds of parked records that were made under the old name "{was}" do not count for'
        f' "{app}" ({named}): what they held runs when it is due; hold it again with'
        " `redrive parked hold`"
    )


def _take(record: Record, found: dict[str, ParkedRule]) -> None:
    """Take what one message says; what redrive did not write is left alone."""
    if not (record.key or b"").startswith(_KEY.encode()):
        return
    try:
        rule = ParkedRule.of(json.loads(record.value or b"null"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    found[rule.id] = rule
