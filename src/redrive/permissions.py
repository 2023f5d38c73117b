"""What an app must be allowed to do on a secured Kafka: pure, from the app to a list.

`redrive doctor` compares the list with what the broker allows, `redrive topics --acls` prints it, a
run ends with what is missing of it, and the table in docs/topics.md is checked against it.

Nothing is asked for that something else implies: whoever may read or write a topic, a group or a
transactional id may describe it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from redrive.app import App
from redrive.guarantees import GUARANTEES

Purpose = Literal["run", "relay", "topics", "topics --apply"]
"""`redrive run` on either engine, `redrive relay`, `redrive topics` without and with --apply."""
Resource = Literal["topic", "group", "transactional-id"]
Role = Literal[
    "source topics", "delay topics", "dead topic", "outbound topics", "group", "transactional ids"
]
Operation: TypeAlias = Literal[
    "READ", "WRITE", "CREATE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"
]

_LOOKING: Final[tuple[Operation, ...]] = ("DESCRIBE", "DESCRIBE_CONFIGS")
_APPLYING: Final[dict[Role, tuple[Operation, ...]]] = {
    "delay topics": (*_LOOKING, "CREATE", "ALTER", "ALTER_CONFIGS"),
    "dead topic": (*_LOOKING, "CREATE", "ALTER", "ALTER_CONFIGS"),
    "outbound topics": (*_LOOKING, "CREATE"),
}


class Permission(NamedTuple):
    """What has to be granted on one resource."""

    role: Role
    resource: Resource
    name: str
    operations: tuple[Operation, ...]
    prefixed: bool = False
    """Whether it is about all names that begin so."""

    @property
    def of(self) -> str:
        """What it is about: `topic orders`."""
        kind = self.resource.replace("-", " ") + ("s that begin with" if self.prefixed else "")
        return f"{kind} {self.name}"

    def __str__(self) -> str:
        return f"{' and '.join(self.operations)} on {self.of}"


def permissions(app: App, purpose: Purpose = "run") -> list[Permission]:
    """What is needed, by resource; each resource once."""
    match purpose:
        case "run":
            return list(_of_run(app))
        case "relay":
            return [
                _topic(role, name, ("WRITE",)) for role, name in _topics(app) if name in _sent(app)
            ]
        case "topics":
            return [_topic(role, name, _LOOKING) for role, name in _topics(app)]
        case "topics --apply":
            return [
                _topic(role, name, _APPLYING.get(role, _LOOKING)) for role, name in _topics(app)
            ]


def lacking(
    needed: Iterable[Permission], allowed: Mapping[tuple[Resource, str], frozenset[str] | None]
) -> list[Permission]:
    """What of it is not allowed; what the broker does not tell is left out."""
    found = []
    for one in needed:
        granted = allowed.get((one.resource, one.name))
        if granted is not None and not granted.issuperset(one.operations):
            refused = tuple(each for each in one.operations if each not in granted)
            found.append(one._replace(operations=refused))
    return found


def kafka_acls(needed: Iterable[Permission], user: str) -> list[str]:
    """The arguments of Kafka's own tool that grant all of it."""
    return [
        f"--add --allow-principal 'User:{user}'"
        + "".join(f" --operation {_word(each)}" for each in one.operations)
        + f" --{one.resource} '{one.name}'"
        + (" --resource-pattern-type prefixed" if one.prefixed else "")
        for one in needed
    ]


def transactional_prefix(app: str) -> str:
    """What the transactional ids of an app begin with, and nobody else's."""
    return f"{app}/"  # which no name of an app or a topic has in it


def _of_run(app: App) -> Iterable[Permission]:
    guarantee = GUARANTEES[app.delivery]
    sent = set() if guarantee.outbox else set(_sent(app))
    for name, handler in app.handlers.items():
        writes = name in sent or handler.retry.redeliver == "origin"
        yield _topic("source topics", name, ("READ", "WRITE") if writes else ("READ",))
    for name in app.delay_topics:
        yield _topic("delay topics", name, ("READ", "WRITE"))
    yield _topic("dead topic", app.dead_topic, ("WRITE",))
    for name in app.outbound_topics:
        if name in sent:
            yield _topic("outbound topics", name, ("WRITE",))
    yield Permission("group", "group", app.name, ("READ",))
    if guarantee.publisher == "transaction":
        prefix = transactional_prefix(app.name)
        yield Permission("transactional ids", "transactional-id", prefix, ("WRITE",), prefixed=True)


def _topics(app: App) -> Iterable[tuple[Role, str]]:
    yield from (("source topics", name) for name in app.handlers)
    yield from (("delay topics", name) for name in app.delay_topics)
    yield ("dead topic", app.dead_topic)
    yield from (("outbound topics", name) for name in app.outbound_topics)


def _sent(app: App) -> list[str]:
    """All topics that `sends=` declares, source topics among them."""
    declared = (app.sends, *(handler.sends for handler in app.handlers.values()))
    return list(dict.fromkeys(name for names in declared for name in names or ()))


def _topic(role: Role, name: str, operations: tuple[Operation, ...]) -> Permission:
    return Permission(role, "topic", name, operations)


def _word(operation: Operation) -> str:
    """As Kafka's tool writes it: DescribeConfigs."""
    return operation.title().replace("_", "")
