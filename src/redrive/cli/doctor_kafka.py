"""What `redrive doctor` checks in Kafka: brokers, topics, permissions, clock."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from redrive.app import App
from redrive.cli.doctor_database import clock_finding
from redrive.cli.doctor_permissions import check_permissions
from redrive.cli.finding import Finding, misconfigured, not_checked, ok, warning, wrong
from redrive.cli.topics import look
from redrive.config import Settings
from redrive.engines import left_behind
from redrive.engines.renamed import Names, moved, sentence, unread, unread_before
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.numbers import counted
from redrive.record import TopicPartition, Write
from redrive.topics import Plan, Problem, TopicPlan
from redrive.tuning import DOCTOR_PATIENCE

_SINCE_TOPIC_IDS: Final = (2, 8)
_METADATA_BYTES: Final = 4096
_HURRY: Final = {"socket.timeout.ms": 5000}  # somebody is waiting at a terminal
_WEEK_MINUTES: Final = 7 * 24 * 60
_KEPT_EVERY: Final = Spec.keep_every // 60_000


def check_kafka(
    settings: Settings, app: App | None, outage: int, *, probe: bool
) -> Iterator[Finding]:
    """All findings; without a broker, the rest is reported as not checked."""
    settings = replace(settings, librdkafka={**_HURRY, **settings.librdkafka})
    admin = Admin(settings, patience=DOCTOR_PATIENCE)
    try:
        cluster = admin.ask(
            "describe the cluster",
            lambda client: client.describe_cluster(include_authorized_operations=True).result(),
        )
    except RedriveError as error:
        is_ours = isinstance(error, ConfigurationError)  # librdkafka does not take the settings
        todo = "start Kafka, or fix the address or the security settings"
        yield (misconfigured if is_ours else wrong)("broker", str(error), todo)
        for subject in ("broker version", "topics", "name", "permissions", "broker clock"):
            yield not_checked(subject, "no broker answers")
        return
    count = len(cluster.nodes)
    yield ok("broker", f"{count} broker{'s' * (count != 1)} at {settings.servers()}")
    yield from _guarded("broker version", lambda: _check_version(admin, cluster.nodes[0].id))
    if app is None:
        yield not_checked("topics", "no app given: run `redrive doctor module:app`")
        yield not_checked("name", "no app given: run `redrive doctor module:app`")
        yield not_checked("permissions", "no app given: run `redrive doctor module:app`")
    else:
        yield from _guarded("topics", lambda: _check_topics(settings, admin, app, outage))
        yield from _guarded("name", lambda: _check_name(settings, admin, app))
        yield from _guarded("permissions", lambda: check_permissions(admin, settings, app, cluster))
    if probe:
        yield from _guarded("broker clock", lambda: _check_clock(settings, admin))
    else:
        yield not_checked(
            "broker clock", "--probe measures it: creates, writes to and deletes a topic"
        )


def _check_name(settings: Settings, admin: Admin, app: App) -> Iterator[Finding]:
    names = Names(app, settings, admin)
    earlier, later = names.earlier(), names.later()
    if later is not None and later != app.was:
        yield wrong("name", *moved(app, later).split(": ", 1))
    elif stranded := names.stranded():
        yield wrong("name", *unread(app, stranded).split(": ", 1))
    elif app.was is not None and (stranded := names.stranded_before(app.was)):
        yield wrong("name", *unread_before(app, stranded).split(": ", 1))
    elif later is not None:
        yield ok("name", f"{app.name} continues where {later} stopped")
    elif earlier is None:
        yield ok("name", f"nothing suggests that {app.name} had another name before")
    elif earlier == app.was:
        yield ok("name", f"{app.name} continues where {earlier} stopped")
    else:
        yield wrong("name", *sentence(app, earlier).split(": ", 1))


def _guarded(subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Run one check; if it fails, the others still run."""
    try:
        yield from check()
    except NotAllowedError as error:  # what a run needs is checked separately
        yield not_checked(subject, error.alone)
    except RedriveError as error:
        yield warning(subject, str(error), "run it again later, or check by hand")


# Version and settings of a broker


def _check_version(admin: Admin, broker: int) -> Iterator[Finding]:
    settings = admin.broker_settings(broker)
    protocol = settings.get("inter.broker.protocol.version")
    # Kafka 4 no longer has this setting.
    if protocol is not None and _version(protocol) < _SINCE_TOPIC_IDS:
        yield wrong(
            "broker version", f"protocol {protocol}", "use Kafka 2.8 or newer, which has topic ids"
        )
    else:
        yield ok("broker version", f"protocol {protocol}" if protocol else "Kafka 4 or newer")
    metadata = int(settings.get("offset.metadata.max.bytes", _METADATA_BYTES))
    if metadata < _METADATA_BYTES:
        yield warning(
            "commit metadata",
            f"offset.metadata.max.bytes is {metadata}",
            f"raise it to {_METADATA_BYTES}: more completed work is remembered across a restart",
        )
    yield from retention_findings(int(settings.get("offsets.retention.minutes", _WEEK_MINUTES)))


def retention_findings(minutes: int) -> Iterator[Finding]:
    """How long the broker keeps offsets that are not committed again."""
    seen, todo = f"offsets.retention.minutes is {minutes}", f"raise it to at least {_WEEK_MINUTES}"
    if minutes < 2 * _KEPT_EVERY:
        yield wrong(
            "progress",
            f"{seen}: a run on Spark commits unchanged offsets only every {_KEPT_EVERY} minutes,"
            " and the broker forgets them in between",
            todo,
        )
    elif minutes < _WEEK_MINUTES:
        yield warning("progress", f"{seen}: an app stopped for longer loses its offsets", todo)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.partition("-")[0].split(".")[:2])


# Topics, as `redrive topics` sees them


def _check_topics(settings: Settings, admin: Admin, app: App, outage: int) -> Iterator[Finding]:
    plan, _ = look(app, KafkaTopics(settings, admin=admin), outage=outage)
    yield from topic_findings(plan)
    for name, records in left_behind.left_behind(app, settings, admin).items():
        seen, _, todo = left_behind.sentence(app, name, records).partition(": ")
        yield (warning if records else ok)(f"topic {name}", *((seen, todo) if records else (seen,)))


def topic_findings(plan: Plan) -> Iterator[Finding]:
    """Each topic's problems; one line for those that have none."""
    for topic in plan.topics:
        yield from _topic_findings(topic)
    if plan.undeclared:
        handlers = ", ".join(plan.undeclared)
        yield not_checked(
            "outbound topics",
            f"the handlers of {handlers} do not declare which topics they send to; add sends=",
        )


def _topic_findings(topic: TopicPlan) -> Iterator[Finding]:
    subject = f"topic {topic.name}"
    if not topic.problems and topic.state is not None:
        yield ok(subject, f"{topic.role}, {counted(topic.state.partitions, 'partition')}")
    for problem in topic.problems:
        if problem.hidden:  # reported once for all topics, with the permissions
            yield not_checked(subject, f"{topic.role}; its settings cannot be read")
            continue
        verdict = wrong if problem.weight == "wrong" else warning
        yield verdict(subject, *_seen_and_todo(problem))


def _seen_and_todo(problem: Problem) -> tuple[str, str]:
    if problem.fix is not None:
        return problem.text, f"redrive topics --apply would {problem.fix}"
    if problem.weight == "note":
        return problem.text, "see docs/reference/topics.md"
    seen, _, how = problem.text.partition(": ")
    return seen, how or "do it by hand"


# The clock of the broker that leads a new topic


def _check_clock(settings: Settings, admin: Admin) -> Iterator[Finding]:
    """A record's log-append time is the only time that Kafka reports."""
    name = f"redrive-doctor-{uuid.uuid4().hex[:12]}"
    topics = KafkaTopics(settings, admin=Admin(settings))
    topics.create(name, 1, {"message.timestamp.type": "LogAppendTime"})
    publisher, log = KafkaPublisher(settings), KafkaLog(settings, name, admin=admin)
    try:
        publisher.publish([Write(name, None, b"")])  # connects
        before = time.time_ns() // 1_000_000
        publisher.publish([Write(name, None, b"")])
        after = time.time_ns() // 1_000_000
        record = log.read(TopicPartition(name, 0), 1, 2)[0]
        yield clock_finding("broker clock", (record.timestamp or 0) - (before + after) // 2)
    finally:
        publisher.close()
        log.close()
        topics.delete(name)
