"""pytest fixtures for tests against a real Kafka and PostgreSQL; pytest finds them by itself.

One stack per test session, started by the first test that needs it; each test has its own topic
and database names, so tests neither wait for nor see each other. What a test has created is deleted
after it: a broker with the topics of a thousand tests is slow, above all to restart.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    # This file is imported by every pytest run of every user: it must cost nothing.
    from redrive.local import Stack

TopicFactory = Callable[..., str]

_running: Final[list[Stack]] = []
"""The stacks of this test session."""


@pytest.fixture(scope="session")
def redrive_stack() -> Iterator[Stack]:
    """A Kafka broker and a PostgreSQL in a temporary folder, for the whole session."""
    from redrive.local import stack

    with stack(ephemeral=True) as running, _known(running):
        yield running


@pytest.fixture(scope="session")
def redrive_secure_stack() -> Iterator[Stack]:
    """The same with TLS, users and permissions, for the whole session."""
    from redrive.local import stack

    with stack(ephemeral=True, secure=True) as running, _known(running):
        yield running


@pytest.fixture
def redrive_prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name that no other test has, for topics, groups and apps: letters, digits, `-`.

    Topics whose names begin with it are deleted after the test.
    """
    with own_prefix(request.node.name) as prefix:
        yield prefix


@pytest.fixture
def redrive_topic(redrive_stack: Stack, redrive_prefix: str) -> TopicFactory:
    """Creates topics: `redrive_topic("orders", partitions=3)` returns the name of an empty one."""

    def create(
        name: str = "topic", *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        full = f"{redrive_prefix}.{name}"
        _create_topic(redrive_stack.bootstrap, full, partitions, config or {})
        return full

    return create


@pytest.fixture
def redrive_database(redrive_stack: Stack) -> Iterator[str]:
    """The DSN of an empty database, dropped after the test."""
    with own_database(redrive_stack) as dsn:
        yield dsn


@contextmanager
def own_prefix(test: str) -> Iterator[str]:
    """A prefix for the names of a test's topics, which are deleted in the end."""
    readable = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:40]
    prefix = f"{readable}-{uuid.uuid4().hex[:8]}"
    yield prefix
    for running in _running:
        _delete_topics(running, prefix)


@contextmanager
def own_database(running: Stack) -> Iterator[str]:
    """The address of a new database, which is dropped in the end."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(running.database, autocommit=True) as admin:
        admin.execute(f'create database "{name}"')
    try:
        yield running.postgres.dsn(name)
    finally:
        with psycopg.connect(running.database, autocommit=True) as admin:
            # By force: a connection left open by a failed test must not keep it.
            admin.execute(f'drop database "{name}" with (force)')


@contextmanager
def _known(running: Stack) -> Iterator[None]:
    _running.append(running)
    try:
        yield
    finally:
        _running.remove(running)


def _delete_topics(running: Stack, prefix: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**running.client(), "log_level": 0})
    try:
        found = [name for name in admin.list_topics(timeout=5).topics if name.startswith(prefix)]
        for deleted in admin.delete_topics(found, request_timeout=5).values() if found else ():
            deleted.result(5)
    except (KafkaException, TimeoutError):
        pass  # a broker that the test has left stopped: the stack, and they, end with the session


def _create_topic(bootstrap: str, name: str, partitions: int, config: Mapping[str, str]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from redrive.local.waiting import wait_until

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, config=dict(config))
    admin.create_topics([topic])[name].result(30)

    def known() -> bool:
        metadata = admin.list_topics(name, timeout=10).topics[name]
        return metadata.error is None and all(
            partition.leader >= 0 for partition in metadata.partitions.values()
        )

    # A new topic is not usable at once: brokers learn of it a moment later.
    if not wait_until(known, timeout=30):
        pytest.fail(f"topic {name} was not ready within 30 s")
