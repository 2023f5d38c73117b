"""What `redrive doctor` finds out about permissions: what this app needs, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from redrive.app import App
from redrive.cli.finding import Finding, not_checked, ok, warning, wrong
from redrive.config import Settings
from redrive.guarantees import GUARANTEES
from redrive.kafka.admin import Admin, names_of
from redrive.kafka.config import make_handle, producer_config
from redrive.kafka.errors import NotAllowedError, is_not_allowed
from redrive.permissions import Operation, Permission, Resource, lacking, permissions

_SECONDS: Final = 5.0
_SETTINGS: Final[tuple[Operation, ...]] = ("DESCRIBE_CONFIGS",)

_Allowed = dict[tuple[Resource, str], frozenset[str] | None]


def check_permissions(
    admin: Admin, settings: Settings, app: App, cluster: Any
) -> Iterator[Finding]:
    """What is needed to run this app with its delivery, on either engine; and around it."""
    needed = permissions(app)
    topics = [one.name for one in permissions(app, "topics")]
    seen = admin.allowed(topics)
    allowed: _Allowed = {("topic", name): operations for name, operations in seen.items()}
    for one in needed:
        if one.resource == "group":
            allowed["group", one.name] = _allowed_on_group(admin, one.name)
        elif one.resource == "transactional-id":
            allowed["transactional-id", one.name] = _allowed_on_ids(settings, one.name)
    yield from findings(needed, allowed)
    yield from _of_undeclared(app)
    yield from _of_settings(app, allowed)
    yield from _of_relay(app, allowed)
    missing = [name for name in topics if name not in seen]
    if missing:
        yield from _of_creating(missing, names_of(cluster.authorized_operations))


def findings(needed: Iterable[Permission], allowed: _Allowed) -> Iterator[Finding]:
    """One line for each resource: what is needed of it is allowed, or what is not."""
    for one in needed:
        subject = f"permissions on {one.of}"
        if (one.resource, one.name) not in allowed:
            yield not_checked(subject, "it does not exist yet")
            continue
        refused = lacking([one], allowed)
        if allowed[one.resource, one.name] is None:
            yield not_checked(subject, "the broker does not tell")
        elif refused:
            what = " and ".join(refused[0].operations)
            yield wrong(subject, f"{what} not allowed", f"grant {refused[0]}: {_HOW}")
        else:
            yield ok(subject, f"{', '.join(one.operations)} allowed")


_HOW: Final = "`redrive topics module:app --acls` prints all that is needed"


def _of_undeclared(app: App) -> Iterator[Finding]:
    sending = [topic for topic, handler in app.handlers.items() if handler.sends is None]
    if sending:
        yield not_checked(
            "permissions on outbound topics",
            f"what the handlers of {', '.join(sending)} send to is not declared: sends=...",
        )


def _of_settings(app: App, allowed: _Allowed) -> Iterator[Finding]:
    own = {*app.handlers, *app.delay_topics}
    wanted = [one._replace(operations=_SETTINGS) for one in permissions(app, "topics")]
    hidden = [one.name for one in lacking(wanted, allowed) if one.name in own]
    if hidden:
        yield warning(
            "permission to see settings",
            f"DESCRIBE_CONFIGS not allowed on {', '.join(hidden)}: a run cannot see whether they"
            " are set right, nor how long ids have to be remembered",
            f"grant it, or run `redrive topics` as somebody else: {_HOW}",
        )


def _of_relay(app: App, allowed: _Allowed) -> Iterator[Finding]:
    if not GUARANTEES[app.delivery].outbox:
        return
    for one in lacking(permissions(app, "relay"), allowed):
        yield warning(
            f"permissions of the relay on {one.of}",
            f"{' and '.join(one.operations)} not allowed",
            f"grant {one} to whoever `redrive relay` runs as",
        )


def _of_creating(missing: list[str], granted: frozenset[str] | None) -> Iterator[Finding]:
    subject = "permission to create topics"
    if granted is None:
        yield not_checked(subject, "the broker does not tell")
    elif "CREATE" in granted:
        yield ok(subject, "CREATE allowed on the cluster")
    else:
        yield not_checked(
            subject,
            f"not on all topics; on {', '.join(missing)} alone only the attempt would tell",
        )


# What the broker tells


def _allowed_on_group(admin: Admin, group: str) -> frozenset[str] | None:
    def ask(client: AdminClient) -> Any:
        asked = client.describe_consumer_groups([group], include_authorized_operations=True)
        return asked[group].result()

    try:
        return names_of(admin.ask(f"describe group {group}", ask).authorized_operations)
    except NotAllowedError:
        return frozenset()


def _allowed_on_ids(settings: Settings, prefix: str) -> frozenset[str] | None:
    """By using one that no partition has: of transactional ids a broker tells nothing else."""
    config = producer_config(settings)
    config["transactional.id"] = f"{prefix}doctor"
    # A broker refuses a message's time-out above that of its transaction.
    config["message.timeout.ms"] = 5000
    producer = make_handle(Producer, config)
    try:
        producer.init_transactions(_SECONDS)
    except KafkaException as raised:
        return frozenset() if is_not_allowed(raised.args[0].name()) else None
    return frozenset({"WRITE", "DESCRIBE"})
