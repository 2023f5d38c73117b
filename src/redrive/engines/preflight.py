"""What is checked before a run begins: better an error now than a run that dies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Final, NamedTuple

from redrive.app import App
from redrive.choices import Engine
from redrive.config import Settings, SettingsArguments, load_settings
from redrive.engines import database, left_behind
from redrive.engines.renamed import Names, moved, sentence, unread, unread_before
from redrive.engines.waiting_rooms import beyond_source, too_few
from redrive.errors import NotReadyError, RedriveError
from redrive.kafka.admin import Admin, pause
from redrive.kafka.errors import BrokerError
from redrive.kafka.granted import granted
from redrive.kafka.groups import members_of
from redrive.kafka.topic_admin import KafkaTopics
from redrive.loading import load_app
from redrive.numbers import counted
from redrive.permissions import Granted, lacking, permissions
from redrive.topics import topic_names
from redrive.tuning import MEMBERS_GONE_WITHIN, MEMBERS_LOOK_EVERY, START_PATIENCE

log: Final = logging.getLogger("redrive")

_TIME = "message.timestamp.type"
_APPENDED = "LogAppendTime"


class Ready(NamedTuple):
    """What a run has to know about Kafka and the database."""

    inbox_ttl: int | None = None
    """How long ids are remembered, in milliseconds; None: forever."""


def load(target: App | str, engine: Engine, arguments: SettingsArguments) -> tuple[App, Settings]:
    """An app and its settings, with all found right that can be without asking Kafka."""
    app = load_app(target) if isinstance(target, str) else target
    app.check(engine)
    settings = load_settings(arguments, app.settings)
    settings.servers()  # there are some
    return app, settings


def check(
    app: App, settings: Settings, target: str, *, engine: Engine, new_app: bool = False
) -> Ready:
    """Raise an error that says what is missing, or return what was found.

    With `new_app`, it is not checked whether the app is another one under a new name.
    """
    admin = Admin(settings, patience=START_PATIENCE)
    names = topic_names(app)
    try:
        allowed = granted([*permissions(app), *permissions(app, "topics")], settings, admin)
        if refused := _not_allowed(app, settings, target, allowed):
            raise NotReadyError(refused)
        missing = [name for name in names if ("topic", name) not in allowed]
        if missing:
            raise NotReadyError(_missing(app, missing, target))
        if engine == "spark":
            wait_for_workers(admin, app.name)
        _check_rooms(app, settings, admin, target)
        topics = [*app.handlers, *app.delay_topics]
        seen = KafkaTopics(settings, admin=admin).visible_settings(topics)
        ready = _check_more(app, settings, seen, target)
        # Last: whoever has taken over what another name had done should be able to go on.
        if app.was is not None or not new_app:
            _check_name(app, settings, admin, new_app=new_app)
        for name, records in left_behind.left_behind(app, settings, admin).items():
            log.info("%s", left_behind.sentence(app, name, records))
    except BrokerError as error:
        raise NotReadyError(f"{error} (bootstrap is {settings.servers()})") from None
    return ready


def _check_rooms(app: App, settings: Settings, admin: Admin, target: str) -> None:
    """In strict order, records wait in the partition that has the number of their own."""
    if app.ordering != "strict":
        return
    counts = admin.partitions()
    most = max(counts[topic] for topic in app.handlers)
    if few := too_few(app, most, counts):
        listed = ", ".join(f"{topic} has {count}" for topic, count in few.items())
        raise NotReadyError(
            f"the order of {app.name} is strict, so that its topics need {most} partitions, as its"
            f" source topic has: {listed}; run `redrive topics {target} --apply`"
        )
    groups = (app.name,) if app.was is None else (app.was, app.name)
    nobodys = left_behind.waiting_in(groups, beyond_source(app, most, counts), settings, admin)
    if left := {place: records for place, records in nobodys.items() if records}:
        listed = ", ".join(f"{counted(n, 'record')} in {place}" for place, n in left.items())
        raise NotReadyError(
            f"the order of {app.name} is strict, and {next(iter(app.handlers))} has only"
            f" {counted(most, 'partition')}: nobody would read {listed}. Run it with another"
            " `ordering=` until they have ended"
        )


def _check_more(
    app: App, settings: Settings, seen: Mapping[str, Mapping[str, str]], target: str
) -> Ready:
    _check_stamped(app, seen, target)
    if not app.guarantee.database:
        return Ready()
    unready = database.unready(app, settings, target)
    if unready is not None:
        raise NotReadyError(unready)
    return Ready(database.inbox_ttl(app, seen))


def _check_name(app: App, settings: Settings, admin: Admin, *, new_app: bool) -> None:
    names = Names(app, settings, admin)
    if (was := app.was) is not None:
        if not new_app and (stranded := names.stranded_before(was)):
            raise NotReadyError(unread_before(app, stranded))
        names.take_over(was, lambda: wait_for_workers(admin, was))
    if not new_app and (later := names.later()) is not None:
        raise NotReadyError(moved(app, later))
    if not new_app and (stranded := names.stranded()):
        raise NotReadyError(unread(app, stranded))
    earlier = None if new_app else names.earlier()
    if earlier is not None:
        raise NotReadyError(sentence(app, earlier))


def wait_for_workers(admin: Admin, group: str) -> None:
    """Wait until the group has no members: Spark commits for it, which brokers refuse otherwise.

    The same for the group of an app that was renamed, whose progress is taken over.

    A stopped worker stays a member until its session times out, so that it can come back under its
    name. Nothing distinguishes it from one that is running.
    """
    if not admin.has_members(group):
        return
    log.warning(
        "the group %s has active members: a stopped worker stays one until its session times out"
        " (20 s, or 45 s with --group-protocol consumer); redrive waits for that, up to %.0f s",
        group,
        MEMBERS_GONE_WITHIN,
    )
    end = monotonic() + MEMBERS_GONE_WITHIN
    while admin.has_members(group):
        if monotonic() >= end:
            raise NotReadyError(running(admin, group))
        pause(MEMBERS_LOOK_EVERY)


def running(admin: Admin, group: str) -> str:
    """The sentence about an app whose workers are in its group."""
    try:
        members = members_of(admin, group)
    except BrokerError:
        members = None  # those of the newer protocol cannot be asked for
    names = f" ({', '.join(sorted(each.name for each in members))})" if members else ""
    return (
        f"the app {group} is running as a worker: its group has active members{names}, so nobody"
        " else may commit for it; stop the worker first"
    )


def not_allowed(app: App, settings: Settings, target: str) -> str:
    """All permissions that the app lacks, in one sentence; empty: unknown.

    For a run that was refused something: brokers do not always say what, and never what else.
    """
    admin = Admin(settings, patience=START_PATIENCE)
    try:
        return _not_allowed(app, settings, target, granted(permissions(app), settings, admin))
    except RedriveError:  # also where no client can be made now, as while certificates change
        return ""


def _not_allowed(app: App, settings: Settings, target: str, allowed: Granted) -> str:
    refused = lacking(permissions(app), allowed)
    if not refused:
        return ""
    user = settings.security.user
    who = "this user" if user is None else f"user {user}"
    what = ", ".join(map(str, refused))
    return (
        f"{who} lacks permissions ({what}): grant them; `redrive topics {target} --acls` prints how"
    )


def _check_stamped(app: App, seen: Mapping[str, Mapping[str, str]], target: str) -> None:
    """Check that brokers timestamp the records of delay topics on arrival."""
    hidden = [name for name in [*app.handlers, *app.delay_topics] if name not in seen]
    if hidden:
        log.warning(
            "the settings of %s are not checked: this user may not read them (DESCRIBE_CONFIGS)",
            ", ".join(hidden),
        )
    wrong = [
        name for name in app.delay_topics if name in seen and seen[name].get(_TIME) != _APPENDED
    ]
    if wrong:
        raise NotReadyError(
            f"{', '.join(wrong)}: {_TIME} is not {_APPENDED}, so it is unknown when records are"
            f" due: run `redrive topics {target} --apply`"
        )


def _missing(app: App, names: list[str], target: str) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    sources = " --create-sources" if any(name in app.handlers for name in names) else ""
    subject = f"topic {listed} does" if len(names) == 1 else f"topics {listed} do"
    return f"{subject} not exist: run `redrive topics {target} --apply{sources}`"
