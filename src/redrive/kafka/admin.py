"""One admin client; requests are retried while errors are transient."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from enum import Enum
from typing import Final, TypeVar

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from redrive.config import Settings
from redrive.kafka.config import admin_config, make_handle, report_error
from redrive.kafka.errors import BrokerError, MissingTopicError, is_not_allowed, not_allowed
from redrive.kafka.rdkafka import (
    ConfigResource,
    ConsumerGroupListing,
    ResourceType,
    TopicDescription,
)
from redrive.tuning import BROKER_LOOK_TIMEOUT, BROKER_PATIENCE, BROKER_PAUSE

_Answer = TypeVar("_Answer")

PATIENCE: Final = BROKER_PATIENCE
"""As those who wait beside an `Admin` know it."""

_EMPTY: Final = ConsumerGroupState.EMPTY
_SILENT: Final = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN")
"""Nobody answered, or somebody else."""
_PASSING: Final = frozenset(
    {
        "_TRANSPORT",
        "_TIMED_OUT",
        "_ALL_BROKERS_DOWN",
        # librdkafka dropped a broker during a request, because the cluster has others by now.
        "_DESTROY_BROKER",
        "_WAIT_COORD",
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REBALANCE_IN_PROGRESS",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH",
        # Offsets that wait for a transaction to end.
        "UNSTABLE_OFFSET_COMMIT",
    }
)


class Admin:
    """An admin client, created when it is first needed."""

    def __init__(self, settings: Settings, *, patience: float = BROKER_PATIENCE) -> None:
        self._settings = settings
        self._patience = patience
        self._client: AdminClient | None = None
        self._lock = threading.Lock()
        self._trouble: KafkaError | None = None

    @property
    def client(self) -> AdminClient:
        """The client itself. It has no close(): it ends when nothing references it."""
        with self._lock:
            if self._client is None:
                config = admin_config(self._settings)
                self._client = make_handle(AdminClient, config, self._note_trouble)
            return self._client

    def ask(
        self, what: str, request: Callable[[AdminClient], _Answer], *, needs: str = ""
    ) -> _Answer:
        """Return what the request returns; BrokerError says what could not be done, and why.

        `needs` names the permission to grant if it is missing.
        """
        end = time.monotonic() + self._patience
        self._trouble = None
        while True:
            try:
                return request(self.client)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
            # Only poll() reports why connections fail.
            self.client.poll(0)
            if not is_passing(error) or self._is_shut_out() or time.monotonic() >= end:
                answers = error.name() in _SILENT and self._look_around()
                raise _cannot(what, error, self._trouble, needs, answers=answers)
            self._look_around()
            pause(BROKER_PAUSE)

    def _look_around(self) -> bool:
        """Have librdkafka refresh its metadata: otherwise it keeps asking a broker that is gone.

        Whether a broker answers: the one that was asked may be another.
        """
        try:
            self.client.list_topics(timeout=BROKER_LOOK_TIMEOUT)
        except KafkaException:
            return False  # the request itself will report that
        return True

    def _note_trouble(self, error: KafkaError) -> None:
        report_error(error)
        # The first error says most: later ones are its consequences. But a refusal says more.
        if _is_refusal(error) or (self._trouble is None and error.name() != "_ALL_BROKERS_DOWN"):
            self._trouble = error

    def _is_shut_out(self) -> bool:
        return self._trouble is not None and self._trouble.name() == "_AUTHENTICATION"

    def wait_until(self, what: str, fulfilled: Callable[[], bool]) -> None:
        """Wait for a change to take effect: brokers learn of it a moment after it was made."""
        end = time.monotonic() + self._patience
        while not fulfilled():
            if time.monotonic() >= end:
                raise BrokerError(f"{what} did not complete within {self._patience:.0f} s")
            pause(BROKER_PAUSE)

    def topic(self, name: str) -> TopicDescription:
        """One topic, or MissingTopicError. Asking never creates it."""
        found = self.topics([name])
        if name not in found:
            raise MissingTopicError(name)
        return found[name]

    def topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """The topics that exist. Asking never creates one."""

        def describe(client: AdminClient) -> dict[str, TopicDescription]:
            asked = client.describe_topics(TopicCollection(list(names)))
            return {
                name: found
                for name, answer in asked.items()
                if (found := _unless(KafkaError.UNKNOWN_TOPIC_OR_PART, answer)) is not None
            }

        # If the broker refuses some of several, the caller has to find out which.
        needs = f"DESCRIBE on topic {next(iter(names))}" if len(names) == 1 else ""
        return self.ask(f"describe {', '.join(names)}", describe, needs=needs) if names else {}

    def allowed(self, names: Collection[str]) -> dict[str, frozenset[str] | None]:
        """What this user may do with the topics that exist; None: the broker does not say.

        A user who may not even see whether a topic exists may do nothing with it.
        """

        def describe(client: AdminClient) -> dict[str, frozenset[str] | None]:
            topics = TopicCollection(list(names))
            asked = client.describe_topics(topics, include_authorized_operations=True)
            found: dict[str, frozenset[str] | None] = {}
            for name, answer in asked.items():
                try:
                    topic = _unless(KafkaError.UNKNOWN_TOPIC_OR_PART, answer)
                except KafkaException as raised:
                    if not is_not_allowed(raised.args[0].name()):
                        raise
                    found[name] = frozenset()
                else:
                    if topic is not None:
                        found[name] = names_of(topic.authorized_operations)
            return found

        return self.ask(f"ask for permissions on {', '.join(names)}", describe) if names else {}

    def names(self) -> list[str]:
        """The names of all topics."""
        return list(self.partitions())

    def partitions(self) -> dict[str, int]:
        """All topics that this user can see, with their partition counts."""
        found = self.ask("list topics", lambda client: client.list_topics(timeout=10).topics)
        return {name: len(topic.partitions) for name, topic in sorted(found.items())}

    def broker_settings(self, broker: int | None = None) -> dict[str, str]:
        """The settings of a broker; of any one, if none is named."""
        if broker is None:
            cluster = self.ask("describe the cluster", lambda c: c.describe_cluster().result())
            broker = cluster.nodes[0].id
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        return self.ask(
            f"read the settings of broker {broker}",
            lambda client: {
                name: entry.value
                for name, entry in client.describe_configs([resource])[resource].result().items()
                if entry.value is not None
            },
            needs="DESCRIBE_CONFIGS on the cluster to see them; no run needs it",
        )

    def has_members(self, group: str) -> bool:
        """Whether a group has active members; a group that does not exist has none."""
        return any(one.state != _EMPTY for one in self._listed(group))

    def had_members(self, group: str) -> bool:
        """Whether a group has, or ever had, members."""
        return any(not one.is_simple_consumer_group for one in self._listed(group))

    def _listed(self, group: str) -> list[ConsumerGroupListing]:
        """The group as it is listed, if it exists.

        All groups are listed for this: asked to describe one whose coordinator goes away,
        librdkafka aborts the whole process.
        """

        def look(client: AdminClient) -> list[ConsumerGroupListing]:
            listed = client.list_consumer_groups().result()
            for error in listed.errors:
                raise KafkaException(error)
            return [one for one in listed.valid if one.group_id == group]

        return self.ask(f"look for members of group {group}", look)


def names_of(operations: Collection[Enum] | None) -> frozenset[str] | None:
    """Operations by name; None if the broker did not say which are allowed."""
    return None if operations is None else frozenset(each.name for each in operations)


def _unless(code: int, answer: Future[TopicDescription]) -> TopicDescription | None:
    try:
        return answer.result()
    except KafkaException as raised:
        if raised.args[0].code() != code:
            raise
        return None


def pause(seconds: float) -> None:
    """Pause between two requests to a broker in trouble."""
    time.sleep(seconds)


def _is_refusal(error: KafkaError) -> bool:
    """Whether it says why a reachable broker does not talk to us."""
    return error.name() == "_AUTHENTICATION" or "handshake failed" in error.str()


def is_passing(error: KafkaError) -> bool:
    """Whether a retry may help."""
    return error.name() in _PASSING


def _cannot(
    what: str, error: KafkaError, trouble: KafkaError | None, needs: str, *, answers: bool
) -> BrokerError:
    name = error.name()
    if trouble is not None and trouble.name() == "_AUTHENTICATION":
        error, advice = trouble, "check protocol, mechanism, user and password"
    elif trouble is not None and "certificate verify failed" in trouble.str():
        error = trouble
        advice = "this client does not trust the broker's certificate: set security.ca to its CA's"
    elif answers:
        advice = (
            "a broker answers, but not the one that this is for, or not in time: see whether all of"
            " them are up, and run it again"
        )
    elif name in _SILENT:
        error = trouble or error
        advice = "no broker answers: check the address and the protocol, and that Kafka is running"
    elif is_not_allowed(name):
        return not_allowed(what, name, needs)
    else:
        advice = "check the broker's log"
    return BrokerError(f"cannot {what} ({error.name()}: {error.str()}): {advice}")
