"""What must be so before a run begins: better said now than by a run that dies."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Final, NamedTuple

from redrive.app import App
from redrive.choices import Engine
from redrive.config import Settings
from redrive.engines import database
from redrive.errors import RedriveError
from redrive.guarantees import GUARANTEES
from redrive.kafka.admin import Admin, pause
from redrive.kafka.errors import BrokerError
from redrive.kafka.topics import KafkaTopics
from redrive.permissions import Permission, lacking, permissions
from redrive.topics import topic_names

log: Final = logging.getLogger("redrive")

_PATIENCE = 15.0
"""Seconds: an address at which nobody listens is a mistake more often than an outage."""
_WORKERS_GONE = 60.0
"""Seconds after which members of the group are not workers that were stopped: longer than sessions
last by default, by either protocol."""
_LOOK_EVERY = 0.5
_TIME = "message.timestamp.type"
_APPENDED = "LogAppendTime"


class NotReadyError(RedriveError):
    """Kafka or the database are not as the app needs them; the message says what to run."""


class Ready(NamedTuple):
    """What a run has to know of what is there."""

    inbox_ttl: int | None = None
    """How long ids are remembered, in milliseconds; None: for ever."""


def check(app: App, settings: Settings, target: str, *, engine: Engine) -> Ready:
    """Raise the sentence that says what is missing, or tell what was found."""
    admin = Admin(settings, patience=_PATIENCE)
    names = topic_names(app)
    try:
        allowed = admin.allowed(names)
        refused = lacking(permissions(app), {("topic", name): allowed[name] for name in allowed})
        if refused:
            raise NotReadyError(_not_allowed(refused, settings, target))
        missing = [name for name in names if name not in allowed]
        if missing:
            raise NotReadyError(_missing(app, missing, target))
        if engine == "spark":
            _wait_for_workers(admin, app.name)
        topics = [*app.handlers, *app.delay_topics]
        seen = KafkaTopics(settings, admin=admin).visible_settings(topics)
    except BrokerError as error:
        raise NotReadyError(f"{error} (bootstrap is {settings.servers()})") from None
    _check_stamped(app, seen, target)
    if GUARANTEES[app.delivery].database:
        ttl = database.inbox_ttl(app, seen)
        unready = database.unready(settings, target)
        if unready is not None:
            raise NotReadyError(unready)
        return Ready(ttl)
    return Ready()


def _wait_for_workers(admin: Admin, group: str) -> None:
    """See that nobody is in the group: Spark commits for it, and brokers refuse that of strangers.

    A worker that was stopped stays a member until its session has timed out, so that it can come
    back by its name. Nothing tells it from one that runs.
    """
    if not admin.has_members(group):
        return
    log.warning(
        "the group %s has active members: a worker that was stopped is one of them until its"
        " session has timed out (20 s, 45 s with --group-protocol consumer); this run waits for"
        " that, up to %.0f s",
        group,
        _WORKERS_GONE,
    )
    end = monotonic() + _WORKERS_GONE
    while admin.has_members(group):
        if monotonic() >= end:
            raise NotReadyError(
                f"the app {group} is running as a worker: its group has active members,"
                " so Spark must not commit for it; stop the worker first"
            )
        pause(_LOOK_EVERY)


def _not_allowed(refused: Iterable[Permission], settings: Settings, target: str) -> str:
    user = settings.security.user
    who = "this user" if user is None else f"user {user}"
    what = ", ".join(map(str, refused))
    return f"{who} is not allowed {what}: grant it; `redrive topics {target} --acls` prints how"


def _check_stamped(app: App, seen: Mapping[str, Mapping[str, str]], target: str) -> None:
    """See that brokers say when records of delay topics came."""
    hidden = [name for name in [*app.handlers, *app.delay_topics] if name not in seen]
    if hidden:
        log.warning(
            "the settings of %s are not checked: this user may not see them (DESCRIBE_CONFIGS)",
            ", ".join(hidden),
        )
    wrong = [
        name for name in app.delay_topics if name in seen and seen[name].get(_TIME) != _APPENDED
    ]
    if wrong:
        raise NotReadyError(
            f"{', '.join(wrong)}: {_TIME} is not {_APPENDED}, so that nobody knows when records"
            f" are due: run `redrive topics {target} --apply`"
        )


def _missing(app: App, names: list[str], target: str) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    sources = " --create-sources" if any(name in app.handlers for name in names) else ""
    subject = f"topic {listed} does" if len(names) == 1 else f"topics {listed} do"
    return f"{subject} not exist: run `redrive topics {target} --apply{sources}`"
