"""What `redrive doctor` checks about permissions: what this app needs, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from redrive.app import App
from redrive.cli.finding import Finding, not_checked, ok, warning, wrong
from redrive.config import Settings
from redrive.guarantees import GUARANTEES
from redrive.kafka.admin import Admin, names_of
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.granted import granted
from redrive.permissions import Granted, Operation, Permission, lacking, permissions
from redrive.topics import topic_names

_SETTINGS: Final[tuple[Operation, ...]] = ("DESCRIBE_CONFIGS",)


def check_permissions(
    admin: Admin, settings: Settings, app: App, cluster: Any
) -> Iterator[Finding]:
    """What is needed to run this app with its delivery, on either engine, and to operate it."""
    needed, seen = permissions(app), permissions(app, "topics")
    allowed = granted([*needed, *seen], settings, admin)
    for kind, name in [of for of, operations in allowed.items() if operations is None]:
        if kind == "group":
            allowed[kind, name] = _allowed_on_group(admin, name)
    yield from findings(needed, allowed)
    yield from _of_undeclared(app)
    yield from of_settings(app, allowed)
    yield from _of_relay(app, allowed)
    missing = [name for name in topic_names(app) if ("topic", name) not in allowed]
    if missing:
        yield from _of_creating(missing, names_of(cluster.authorized_operations))


def findings(needed: Iterable[Permission], allowed: Granted) -> Iterator[Finding]:
    """One line per resource: everything needed is allowed, or what is not."""
    for one in needed:
        subject = f"permissions on {one.of}"
        if (one.resource, one.name) not in allowed:
            yield not_checked(subject, "it does not exist yet")
            continue
        refused = lacking([one], allowed)
        if allowed[one.resource, one.name] is None:
            yield not_checked(subject, "the broker does not say")
        elif refused:
            what = " and ".join(refused[0].operations)
            yield wrong(subject, f"{what} not allowed", f"grant {refused[0]}: {_HOW}")
        else:
            yield ok(subject, f"{', '.join(one.operations)} allowed")


_HOW: Final = "`redrive topics module:app --acls` prints everything that is needed"


def _of_undeclared(app: App) -> Iterator[Finding]:
    sending = [topic for topic, handler in app.handlers.items() if handler.sends is None]
    if sending:
        yield not_checked(
            "permissions on outbound topics",
            f"the handlers of {', '.join(sending)} do not declare where they send; add sends=",
        )


def of_settings(app: App, allowed: Granted) -> Iterator[Finding]:
    """Whether the settings of topics may be read, without which some checks are left out."""
    wanted = [
        one._replace(operations=_SETTINGS)
        for one in permissions(app, "topics")
        if one.role in {"source topics", "delay topics"}
    ]
    hidden = [one.of for one in lacking(wanted, allowed)]
    if not hidden:
        return
    subject, seen = (
        "permission to see settings",
        f"DESCRIBE_CONFIGS not allowed on {', '.join(hidden)}",
    )
    if GUARANTEES[app.delivery].inbox and app.inbox_ttl is None:
        yield warning(
            subject,
            f"{seen}: a run cannot tell how long to remember ids, and keeps them forever",
            f"grant it, or give the app inbox_ttl=: {_HOW}",
        )
    else:
        yield not_checked(
            subject,
            f"{seen}: not needed to run; run `redrive topics` as a user with that permission to"
            " check the settings",
        )


def _of_relay(app: App, allowed: Granted) -> Iterator[Finding]:
    if not GUARANTEES[app.delivery].outbox:
        return
    for one in lacking(permissions(app, "relay"), allowed):
        yield warning(
            f"permissions of the relay on {one.of}",
            f"{' and '.join(one.operations)} not allowed",
            f"grant {one} to the user that runs `redrive relay`",
        )


def _of_creating(missing: list[str], on_cluster: frozenset[str] | None) -> Iterator[Finding]:
    subject = "permission to create topics"
    if on_cluster is None:
        yield not_checked(subject, "the broker does not say")
    elif "CREATE" in on_cluster:
        yield ok(subject, "CREATE allowed on the cluster")
    else:
        yield not_checked(
            subject,
            f"not allowed for all topics; whether for {', '.join(missing)} can only be found out by"
            " trying",
        )


# What the broker reports


def _allowed_on_group(admin: Admin, group: str) -> frozenset[str] | None:
    """More than a run dares to ask: librdkafka may abort the process, which is acceptable here."""

    def ask(client: AdminClient) -> Any:
        asked = client.describe_consumer_groups([group], include_authorized_operations=True)
        return asked[group].result()

    try:
        return names_of(admin.ask(f"describe group {group}", ask).authorized_operations)
    except NotAllowedError:
        return frozenset()
