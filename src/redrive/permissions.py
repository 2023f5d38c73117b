"""What an app must be allowed to do on a secured Kafka: pure, from the app to a list.

`redrive doctor` compares the list with what the broker allows, `redrive topics --acls` prints it, a
run fails with what is missing from it, and the table in docs/reference/permissions.md is checked
against it.

Permissions that others imply are left out: READ, WRITE and ALTER imply DESCRIBE, and ALTER_CONFIGS
implies DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from redrive.app import App
from redrive.topics import all_topic_names

Purpose = Literal[
    "run", "relay", "topics", "topics --apply", "dead", "dead replay", "parked", "parked hold",
    "rewind",
]  # fmt: skip
"""`redrive run` on either engine, `redrive relay`, `redrive topics` without and with --apply,
`redrive dead` to look at letters, and to replay or discard them; `redrive parked` to look at parked
records, and to say something about them; `redrive rewind`."""
Resource = Literal["topic", "group", "transactional-id"]
Role = Literal[
    "source topics", "delay topics", "dead topic", "state topic", "rules topic", "outbound topics",
    "group", "transactional ids",
]  # fmt: skip
Operation: TypeAlias = Literal[
    "READ", "WRITE", "CREATE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"
]
Granted: TypeAlias = dict[tuple[Resource, str], frozenset[str] | None]
"""What is allowed on each resource, including implied operations; None: the broker does not say."""

_SETTINGS: Final[tuple[Operation, ...]] = ("DESCRIBE", "DESCRIBE_CONFIGS")
_LOOKING: Final[dict[Role, tuple[Operation, ...]]] = {"outbound topics": ("DESCRIBE",)}
_APPLYING: Final[dict[Role, tuple[Operation, ...]]] = {
    "delay topics": ("CREATE", "ALTER", "ALTER_CONFIGS"),
    "dead topic": ("CREATE", "ALTER", "ALTER_CONFIGS"),
    "state topic": ("CREATE", "ALTER", "ALTER_CONFIGS"),
    "outbound topics": ("DESCRIBE", "CREATE"),
}


class Permission(NamedTuple):
    """What has to be granted on one resource."""

    role: Role
    resource: Resource
    name: str
    operations: tuple[Operation, ...]
    prefixed: bool = False
    """Whether it covers all names that begin with `name`."""

    @property
    def of(self) -> str:
        """What it is about: `topic orders`."""
        kind = self.resource.replace("-", " ") + ("s that begin with" if self.prefixed else "")
        return f"{kind} {self.name}"

    def __str__(self) -> str:
        return f"{' and '.join(self.operations)} on {self.of}"


def permissions(app: App, purpose: Purpose = "run") -> list[Permission]:
    """What is needed, by resource; each resource once."""
    return list(_NEEDED[purpose](app))


def lacking(needed: Iterable[Permission], allowed: Granted) -> list[Permission]:
    """The needed permissions that are not allowed; what the broker does not say is left out."""
    found = []
    for one in needed:
        granted = allowed.get((one.resource, one.name))
        if granted is not None and not granted.issuperset(one.operations):
            refused = tuple(each for each in one.operations if each not in granted)
            found.append(one._replace(operations=refused))
    return found


def kafka_acls(needed: Iterable[Permission], user: str) -> list[str]:
    """The arguments for `kafka-acls.sh` that grant all of it."""
    return [
        f"--add --allow-principal 'User:{user}'"
        + "".join(f" --operation {_word(each)}" for each in one.operations)
        + f" --{one.resource} '{one.name}'"
        + (" --resource-pattern-type prefixed" if one.prefixed else "")
        for one in needed
    ]


def transactional_prefix(app: str) -> str:
    """The prefix of an app's transactional ids, which no other app's ids have."""
    return f"{app}/"  # no name of an app or topic can contain a slash


def _of_run(app: App) -> Iterable[Permission]:
    guarantee = app.guarantee
    sent = set() if guarantee.outbox else set(_sent(app))
    for name, handler in app.handlers.items():
        writes = name in sent or handler.retry.redeliver == "origin"
        yield _topic("source topics", name, ("READ", "WRITE") if writes else ("READ",))
    yield _delays(app.name, ("READ", "WRITE") if app.delay_topics else ("READ",))
    if app.was is not None:
        yield _delays(app.was, ("READ",))
    yield _topic("dead topic", app.dead_topic, ("WRITE",))
    for name in app.outbound_topics:
        if name in sent:
            yield _topic("outbound topics", name, ("WRITE",))
    for name in filter(None, (app.name, app.was)):
        yield Permission("group", "group", name, ("READ",))
    if guarantee.transactional:
        prefix = transactional_prefix(app.name)
        yield Permission("transactional ids", "transactional-id", prefix, ("WRITE",), prefixed=True)


def _of_dead(
    app: App, on_dead: tuple[Operation, ...], on_state: tuple[Operation, ...]
) -> Iterable[Permission]:
    yield _topic("dead topic", app.dead_topic, on_dead)
    yield _topic("state topic", app.state_topic, on_state)


def _of_replay(app: App, on_group: Operation) -> Iterable[Permission]:
    """To write copies where the app reads them, and to see, or put back, how far it is."""
    for name, handler in app.handlers.items():
        direct = not app.delay_topics or handler.retry.redeliver == "origin"
        yield _topic("source topics", name, ("READ", "WRITE") if direct else ("READ",))
    yield _delays(app.name, ("READ", "WRITE") if app.delay_topics else ("READ",))
    yield Permission("group", "group", app.name, (on_group,))
    prefix = transactional_prefix(app.name)
    yield Permission("transactional ids", "transactional-id", prefix, ("WRITE",), prefixed=True)


def _of_parked(app: App) -> Iterable[Permission]:
    """To see what waits, and the rules about it: their topic has the prefix of delay topics."""
    yield _delays(app.name, ("READ",))
    if app.was is not None:
        yield _delays(app.was, ("READ",))
    yield Permission("group", "group", app.name, ("DESCRIBE",))


def _of_topics(app: App, operations: Mapping[Role, tuple[Operation, ...]]) -> Iterable[Permission]:
    for role, name in _others(app, all_topic_names(app)):
        yield _topic(role, name, operations.get(role, _SETTINGS))
    yield _delays(app.name, operations.get("delay topics", _SETTINGS))


def _others(app: App, among: Collection[str]) -> Iterable[tuple[Role, str]]:
    """All topics except delay topics, and the one for rules, which has their prefix."""
    yield from (("source topics", name) for name in app.handlers if name in among)
    if app.dead_topic in among:
        yield ("dead topic", app.dead_topic)
    if app.state_topic in among:
        yield ("state topic", app.state_topic)
    yield from (("outbound topics", name) for name in app.outbound_topics if name in among)


def _delays(app: str, operations: tuple[Operation, ...]) -> Permission:
    """On all delay topics, by prefix: records may wait in some that no policy uses any more."""
    return Permission("delay topics", "topic", f"{app}.retry.", operations, prefixed=True)


def _sent(app: App) -> list[str]:
    """All topics that `sends=` declares, including source topics."""
    declared = (app.sends, *(handler.sends for handler in app.handlers.values()))
    return list(dict.fromkeys(name for names in declared for name in names or ()))


def _topic(role: Role, name: str, operations: tuple[Operation, ...]) -> Permission:
    return Permission(role, "topic", name, operations)


def _word(operation: Operation) -> str:
    """As Kafka's tool writes it: DescribeConfigs."""
    return operation.title().replace("_", "")


_NEEDED: Final[Mapping[Purpose, Callable[[App], Iterable[Permission]]]] = {
    "run": _of_run,
    "relay": lambda app: [
        _topic(role, name, ("WRITE",)) for role, name in _others(app, _sent(app))
    ],
    "topics": lambda app: _of_topics(app, _LOOKING),
    "topics --apply": lambda app: _of_topics(app, _APPLYING),
    "dead": lambda app: _of_dead(app, ("READ",), ("READ",)),
    "dead replay": lambda app: [
        *_of_dead(app, ("READ",), ("READ", "WRITE")),
        *_of_replay(app, "DESCRIBE"),
    ],
    "parked": _of_parked,
    "parked hold": lambda app: [
        *_of_parked(app),
        _topic("rules topic", app.rules_topic, ("WRITE",)),
    ],
    "rewind": lambda app: [
        *_of_dead(app, ("DESCRIBE",), ("READ", "WRITE")),
        *_of_replay(app, "READ"),
    ],
}
