"""Which topics an app needs, how they must be configured, and what would make them so.

Pure: turns an app and the topics as they are into a plan. `apply` carries it out, through the port.

- Delay topics timestamp records on arrival (LogAppendTime), keep them longer than their delay plus
  an outage, and are never compacted: two parked records of one key are two records.
- Delay and dead topics accept whatever the source topics accept, with redrive's headers on top.
- The dead topic keeps its records until somebody has looked at them; what was done about them is in
  the state topic, which is compacted and needs only one partition. No run needs that.
- The rules topic is such a one, too, for what operators say about parked records.
- Outbound topics exist, if the app declares them; their settings are up to their readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from redrive.app import App
from redrive.durations import text
from redrive.errors import RedriveError
from redrive.numbers import counted
from redrive.ports import Topics, TopicState

Role = Literal["source", "outbound", "delay", "behind", "dead", "state", "rules"]
Weight = Literal["wrong", "note"]
"""Something wrong would lose records or stop a run; a note is only worth knowing."""

DAY: Final = 86_400_000
OUTAGE: Final = 7 * DAY
MOST_PARTITIONS: Final = 12
"""For delay topics that redrive creates: records only wait there and need no more."""
SOURCE_PARTITIONS: Final = 3
HEADER_ROOM: Final = 16_384
"""Bytes for redrive's headers, of which an error's type, message and trace take at most 10 KiB."""
KEEP_DEAD: Final = 30 * DAY
"""A dead topic with a shorter retention would lose its records over a holiday."""

_BROKERS_MESSAGE_BYTES: Final = 1_048_588
_MOST_MESSAGE_BYTES: Final = 2_147_483_647
_FOR_EVER: Final = -1


@dataclass(frozen=True)
class Create:
    """Make the topic."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replication: int | None

    def __str__(self) -> str:
        return f"create {self.name} with {counted(self.partitions, 'partition')}"


@dataclass(frozen=True)
class Grow:
    """Add partitions."""

    name: str
    partitions: int

    def __str__(self) -> str:
        return f"increase {self.name} to {counted(self.partitions, 'partition')}"


@dataclass(frozen=True)
class Configure:
    """Change settings."""

    name: str
    config: Mapping[str, str]

    def __str__(self) -> str:
        changes = ", ".join(f"{key}={value}" for key, value in self.config.items())
        return f"set {changes} on {self.name}"


Fix: TypeAlias = Create | Grow | Configure


@dataclass(frozen=True)
class Problem:
    """Something that is not right about a topic."""

    text: str
    fix: Fix | None = None
    """What `--apply` does about it; None: it has to be fixed by hand, and the text says how."""
    weight: Weight = "wrong"
    hidden: bool = False
    """Whether the problem is that this user may not read the topic's settings."""


@dataclass(frozen=True)
class TopicPlan:
    """One topic: as it is, and what is wrong with it."""

    name: str
    role: Role
    state: TopicState | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Plan:
    """All topics of an app, sources first."""

    app: str
    topics: tuple[TopicPlan, ...]
    undeclared: tuple[str, ...] = ()
    """Source topics of handlers that do not declare what they send to, so it cannot be checked."""

    @property
    def problems(self) -> Iterator[Problem]:
        """All problems of all topics."""
        return (problem for topic in self.topics for problem in topic.problems)

    @property
    def ok(self) -> bool:
        """Whether nothing is missing or wrong."""
        return not any(problem.weight == "wrong" for problem in self.problems)

    @property
    def fixes(self) -> list[Fix]:
        """What `--apply` does."""
        return [problem.fix for problem in self.problems if problem.fix is not None]


def topic_names(app: App) -> list[str]:
    """All topics that an app reads or writes, as far as it declares them, sources first."""
    behind = [app.behind_topic] if app.ordering == "strict" else []
    return [*app.handlers, *app.outbound_topics, *app.delay_topics, *behind, app.dead_topic]


def all_topic_names(app: App) -> list[str]:
    """The same, and those that only operators need."""
    rules = [app.rules_topic] if app.delay_topics else []
    return [*topic_names(app), app.state_topic, *rules]


UNSEEN: Final = TopicState(0, 0, {})
"""A topic that this user may not see."""


def plan_topics(
    app: App,
    described: Mapping[str, TopicState],
    *,
    outage: int = OUTAGE,
    create_sources: bool = False,
) -> Plan:
    """What exists, what is missing and what is misconfigured."""
    sources = [described[name] for name in app.handlers if name in described]
    standard = _Standard.of(sources)
    strict = app.ordering == "strict"
    rooms = partial(_own, standard, numbered=strict)
    roles: dict[str, tuple[Role, Callable[[str, TopicState | None], Iterator[Problem]]]] = {
        **{name: ("source", _source(app, standard, outage, create=create_sources))
           for name in app.handlers},
        **{name: ("outbound", _outbound(standard)) for name in app.outbound_topics},
        **{name: ("delay", rooms(standard.delay_rules(delay + outage, delay)))
           for name, delay in app.delay_topics.items()},
        **({app.behind_topic: ("behind", rooms(standard.behind_rules(outage + _longest(app))))}
           if strict else {}),
        app.dead_topic: ("dead", _own(standard, standard.dead_rules())),
        app.state_topic: ("state", _state(standard, _LETTERS)),
        **({app.rules_topic: ("rules", _state(standard, _RULES))} if app.delay_topics else {}),
    }  # fmt: skip
    return Plan(
        app.name,
        tuple(
            TopicPlan(
                name,
                role,
                described.get(name),
                (*check(name, described.get(name)), *_unseen(role, described.get(name))),
            )
            for name, (role, check) in roles.items()
        ),
        tuple(name for name, handler in app.handlers.items() if handler.sends is None),
    )


def apply(plan: Plan, topics: Topics) -> Iterator[tuple[Fix, RedriveError | None]]:
    """Apply the fixes one by one; yields each with its error, or None."""
    for fix in plan.fixes:
        try:
            _carry_out(fix, topics)
        except RedriveError as error:
            yield fix, error
        else:
            yield fix, None


def _carry_out(fix: Fix, topics: Topics) -> None:
    match fix:
        case Create(name, partitions, config, replication):
            topics.create(name, partitions, config, replication)
        case Grow(name, partitions):
            topics.grow(name, partitions)
        case Configure(name, config):
            topics.configure(name, config)


# What redrive's own topics must be like


@dataclass(frozen=True)
class _Rule:
    """One setting: its value in a new topic, and when an existing topic has it wrong."""

    key: str
    value: str
    fits: Callable[[str], bool]
    why: str


class _Kept(NamedTuple):
    """What a compacted topic keeps for operators, and how it would be missed."""

    what: str
    if_deleted: str
    if_missing: str


_LETTERS: Final = _Kept(
    "states of dead letters",
    "what was done about dead letters would be forgotten, and letters could be replayed twice",
    "dead letters can be looked at, but neither replayed nor discarded",
)
_RULES: Final = _Kept(
    "rules about parked records",
    "holds would be lost, and held records would run",
    "parked records can be looked at, but neither held nor run now",
)


@dataclass(frozen=True)
class _Standard:
    """What the source topics are like, and so the minimum for redrive's own."""

    partitions: int
    replication: int | None
    in_sync: int
    message_bytes: int

    @classmethod
    def of(cls, sources: list[TopicState]) -> _Standard:
        def numbers(key: str) -> list[int]:
            return [int(state.config[key]) for state in sources if key in state.config]

        largest = max(numbers("max.message.bytes"), default=_BROKERS_MESSAGE_BYTES)
        return cls(
            partitions=max((state.partitions for state in sources), default=SOURCE_PARTITIONS),
            replication=min((state.replication for state in sources), default=None),
            in_sync=min(numbers("min.insync.replicas"), default=1),
            message_bytes=min(largest + HEADER_ROOM, _MOST_MESSAGE_BYTES),
        )

    def delay_rules(self, keep: int, delay: int) -> list[_Rule]:
        outage = text(keep - delay)
        return [
            _Rule(
                "message.timestamp.type",
                "LogAppendTime",
                "LogAppendTime".__eq__,
                "the time at which the broker received a record decides when it is due",
            ),
            _Rule(
                "retention.ms",
                str(keep),
                lambda now: int(now) == _FOR_EVER or int(now) >= keep,
                f"a record waits {text(delay)}, and an outage of {outage} must not delete it",
            ),
            *self._common_rules("parked"),
        ]

    def behind_rules(self, keep: int) -> list[_Rule]:
        return [
            _Rule(
                "retention.ms",
                str(keep),
                lambda now: int(now) == _FOR_EVER or int(now) >= keep,
                f"a record waits behind one that may be parked for {text(keep)}, with an outage",
            ),
            *self._common_rules("waiting"),
        ]

    def dead_rules(self) -> list[_Rule]:
        return [
            _Rule(
                "retention.ms",
                str(_FOR_EVER),
                lambda now: int(now) == _FOR_EVER or int(now) >= KEEP_DEAD,
                "dead letters would be deleted before anybody looks at them",
            ),
            *self._common_rules("dead"),
        ]

    def state_rules(self, kept: _Kept) -> list[_Rule]:
        return [
            _Rule("cleanup.policy", "compact", "compact".__eq__, kept.if_deleted),
            self._in_sync_rule(kept.what),
        ]

    def _in_sync_rule(self, what: str) -> _Rule:
        return _Rule(
            "min.insync.replicas",
            str(self.in_sync),
            lambda now: int(now) >= self.in_sync,
            f"{what} would be less safe than records in their source topic",
        )

    def _common_rules(self, kind: str) -> list[_Rule]:
        least = self.message_bytes
        return [
            _Rule(
                "cleanup.policy",
                "delete",
                "delete".__eq__,
                f"compaction deletes {kind} records that share a key",
            ),
            _Rule(
                "retention.bytes",
                str(_FOR_EVER),
                lambda now: int(now) == _FOR_EVER,
                f"{kind} records would be deleted when there are many of them",
            ),
            _Rule(
                "max.message.bytes",
                str(least),
                lambda now: int(now) >= least,
                "the largest record of a source topic would not fit once redrive's headers are"
                " added",
            ),
            self._in_sync_rule(f"{kind} records"),
        ]


_Check: TypeAlias = Callable[[str, TopicState | None], Iterator[Problem]]


def _longest(app: App) -> int:
    """How long a record can be parked, over all its attempts."""
    return max(
        (each.retry.max_duration or sum(each.retry.delays) for each in app.handlers.values()),
        default=0,
    )


def _own(standard: _Standard, rules: Iterable[_Rule], *, numbered: bool = False) -> _Check:
    """The check of a delay topic or of the dead topic.

    With `numbered`, records wait in the partition that has the number of their own.
    """
    rules = list(rules)
    partitions = standard.partitions if numbered else min(standard.partitions, MOST_PARTITIONS)

    def check(name: str, state: TopicState | None) -> Iterator[Problem]:
        if state is None:
            config = {rule.key: rule.value for rule in rules}
            yield Problem("missing", Create(name, partitions, config, standard.replication))
            return
        yield from _settings(name, state, rules)
        if state.partitions < partitions and numbered:
            yield Problem(
                f"{counted(state.partitions, 'partition')}, should be {partitions}: with strict"
                " order a record waits in the partition that has the number of its own",
                Grow(name, partitions),
            )
        elif state.partitions < partitions:
            yield Problem(
                f"{counted(state.partitions, 'partition')}: enough, but {partitions} let more"
                " records run in parallel",
                Grow(name, partitions),
                "note",
            )
        if standard.replication is not None and state.replication < standard.replication:
            yield Problem(
                f"replication factor is {state.replication}, but its source topics have"
                f" {standard.replication}: raise it with kafka-reassign-partitions"
            )

    return check


def _state(standard: _Standard, kept: _Kept) -> _Check:
    """The check of a topic that only operators need: without it, records can be looked at."""
    rules = standard.state_rules(kept)

    def check(name: str, state: TopicState | None) -> Iterator[Problem]:
        if state is None:
            config = {rule.key: rule.value for rule in rules}
            create = Create(name, 1, config, standard.replication)
            yield Problem(f"missing: {kept.if_missing}", create, "note")
            return
        yield from _settings(name, state, rules)

    return check


def _unseen(role: Role, state: TopicState | None) -> Iterator[Problem]:
    # The settings of an outbound topic are not checked.
    if role != "outbound" and state is not None and not state.config:
        yield Problem(
            "its settings cannot be read, so they are not checked: grant DESCRIBE_CONFIGS on it",
            weight="note",
            hidden=True,
        )


def _settings(name: str, state: TopicState, rules: Iterable[_Rule]) -> Iterator[Problem]:
    for rule in rules:
        now = state.config.get(rule.key)
        if now is not None and not rule.fits(now):
            yield Problem(
                f"{rule.key} is {now}, should be {rule.value}: {rule.why}",
                Configure(name, {rule.key: rule.value}),
            )


def _source(app: App, standard: _Standard, outage: int, *, create: bool) -> _Check:
    def check(name: str, state: TopicState | None) -> Iterator[Problem]:
        if state is None:
            if create:
                yield Problem(
                    "missing", Create(name, standard.partitions, {}, standard.replication)
                )
            else:
                yield Problem(
                    "missing: create it with the settings you want, or let"
                    " `redrive topics --apply --create-sources` do it"
                )
            return
        yield from _source_notes(app, name, state, outage)

    return check


def _outbound(standard: _Standard) -> _Check:
    def check(name: str, state: TopicState | None) -> Iterator[Problem]:
        if state is None:
            # As safe as the source topics; everything else is the broker's default.
            safe = {"min.insync.replicas": str(standard.in_sync)} if standard.in_sync > 1 else {}
            yield Problem("missing", Create(name, standard.partitions, safe, standard.replication))

    return check


def _source_notes(app: App, name: str, state: TopicState, outage: int) -> Iterator[Problem]:
    retention = int(state.config.get("retention.ms", _FOR_EVER))
    compacts = "compact" in state.config.get("cleanup.policy", "")
    if 0 <= retention < outage and state.config.get("cleanup.policy") != "compact":
        yield Problem(
            f"retention.ms is {text(retention)}: an outage of {text(outage)} would delete"
            " unhandled records",
            weight="note",
        )
    if compacts and app.handlers[name].retry.redeliver == "origin":
        yield Problem(
            'it is compacted, and redeliver="origin" writes records back to it: a record without'
            " a key is refused, and an older record replaces newer ones of its key; use"
            ' redeliver="handler"',
            weight="note",
        )
