"""`redrive doctor` and `redrive topics --acls` on a secured Kafka."""

from __future__ import annotations

import json
import re
import sys

import pytest

from redrive import App
from redrive.cli.doctor_permissions import check_permissions, of_settings
from redrive.config import load_settings
from redrive.engines import preflight
from redrive.errors import NotReadyError
from redrive.kafka.admin import Admin
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.loading import load_app
from redrive.permissions import Permission, permissions
from redrive.record import Write
from redrive.topics import all_topic_names


@pytest.fixture
def secured(shop, redrive_secure_stack, redrive_prefix, as_user):
    """An app with its topics; the environment is that of a user with what the app needs."""

    def make(**choices: str) -> tuple[str, list[Permission]]:
        target = shop(**choices)
        app = load_app(target)
        port = KafkaTopics(load_settings(redrive_secure_stack.settings, environ={}))
        for name in all_topic_names(app):
            stamped = {"message.timestamp.type": "LogAppendTime"} if ".retry." in name else {}
            port.create(name, 1, stamped)
        needed = permissions(app)
        as_user(needed)
        return target, needed

    return make


def about_permissions(result) -> dict[str, dict[str, str]]:
    data = json.loads(result.output)
    return {
        line["subject"]: line for line in data["findings"] if line["subject"].startswith("perm")
    }


def test_it_says_exactly_what_is_missing_for_this_app(
    redrive, secured, redrive_secure_stack, redrive_prefix
):
    target, needed = secured(delivery="transaction")
    found = about_permissions(redrive("doctor", target, "--json"))
    assert {line["verdict"] for line in found.values()} == {"ok", "not checked"}
    assert found["permission to see settings"]["verdict"] == "not checked"
    undeclared = found["permissions on outbound topics"]
    assert (undeclared["verdict"], "sends=" in undeclared["seen"]) == ("not checked", True)

    redrive_secure_stack.users.revoke(redrive_prefix, needed)
    result = redrive("doctor", target, "--json")
    assert result.exit_code == 1
    wrong = {
        line["todo"].removeprefix("grant ").partition(":")[0]
        for line in about_permissions(result).values()
        if line["verdict"] == "wrong"
    }
    assert wrong == {str(one) for one in needed}
    assert f"WRITE on transactional ids that begin with {redrive_prefix}/" in wrong


def test_with_exactly_what_is_listed_it_warns_of_nothing_and_does_not_point_at_itself(
    redrive, secured
):
    target, _ = secured(more=", sends=()")
    found = json.loads(redrive("doctor", target, "--json").output)["findings"]
    about_kafka = found[[one["subject"] for one in found].index("broker") :]
    about_kafka = [one for one in about_kafka if not one["subject"].startswith("database")]
    assert [one for one in about_kafka if one["verdict"] not in ("ok", "not checked")] == []
    (version,) = [one for one in about_kafka if one["subject"] == "broker version"]
    assert "DESCRIBE_CONFIGS on the cluster" in version["seen"]
    assert not [one for one in about_kafka if "redrive doctor" in one["seen"] + one["todo"]]


@pytest.mark.parametrize(
    ("choices", "verdict"),
    [
        ({"delivery": "idempotent"}, "warning"),
        ({"delivery": "idempotent", "inbox_ttl": "9d"}, "not checked"),
        ({}, "not checked"),
    ],
)
def test_that_settings_are_hidden_is_a_warning_only_where_ids_are_kept_for_ever(choices, verdict):
    app = App("shop", **choices)
    app.handler("orders")(print)
    allowed = {("topic", name): frozenset({"READ"}) for name in ("orders", "shop.dead")}
    (found,) = of_settings(app, allowed)
    assert found.verdict == verdict


def test_of_each_permission_it_says_that_it_is_missing_and_of_no_other(
    secured, redrive_secure_stack, redrive_prefix
):
    target, needed = secured(delivery="transaction", more=f', sends="{redrive_prefix}.invoices"')
    app, settings = load_app(target), load_settings()

    def wrong() -> set[str]:
        found = check_permissions(Admin(settings), settings, app, cluster=None)
        return {one.todo.partition(":")[0] for one in found if one.verdict == "wrong"}

    assert not wrong()
    for one in (p._replace(operations=(each,)) for p in needed for each in p.operations):
        redrive_secure_stack.users.revoke(redrive_prefix, [one])
        assert wrong() == {f"grant {one}"}
        redrive_secure_stack.users.grant(redrive_prefix, [one])


def test_topics_apply_needs_what_is_listed_and_no_less(
    redrive, shop, as_user, redrive_secure_stack, redrive_prefix
):
    target = shop(more=f', sends="{redrive_prefix}.invoices"')
    app = load_app(target)
    needed = permissions(app, "topics --apply")
    creating = [one._replace(operations=("CREATE",)) for one in permissions(app, "topics")]
    users, names = redrive_secure_stack.users, all_topic_names(app)
    as_user(needed)

    def said() -> str:
        return redrive("topics", target, "--apply", "--create-sources").output

    users.revoke(redrive_prefix, creating)
    assert all(f"grant CREATE on topic {name};" in said() for name in names)
    users.grant(redrive_prefix, creating)
    assert "All topics are set up correctly." in said()

    owner = KafkaTopics(load_settings(redrive_secure_stack.settings, environ={}))
    owner.grow(f"{redrive_prefix}.orders", 9)
    own = [one for one in needed if one.role in {"delay topics", "dead topic"}]
    own_topics = [*app.delay_topics, app.dead_topic]
    for name in own_topics:
        owner.configure(name, {"retention.bytes": "1"})
    looking = [one._replace(operations=("DESCRIBE", "DESCRIBE_CONFIGS")) for one in own]
    altering = [one._replace(operations=("ALTER", "ALTER_CONFIGS")) for one in own]
    users.grant(redrive_prefix, looking)
    users.revoke(redrive_prefix, altering)
    refused = said()
    for operation in ("ALTER", "ALTER_CONFIGS"):
        assert all(f"grant {operation} on topic {name};" in refused for name in own_topics)
    users.grant(redrive_prefix, altering)
    users.revoke(redrive_prefix, looking)
    assert "All topics are set up correctly." in said()


def test_topics_needs_what_is_listed_and_no_less(
    redrive, secured, redrive_secure_stack, redrive_prefix
):
    target, for_runs = secured(more=f', sends="{redrive_prefix}.invoices"')
    needed = permissions(load_app(target), "topics")
    users = redrive_secure_stack.users
    users.revoke(redrive_prefix, for_runs)
    users.grant(redrive_prefix, needed)
    assert "cannot be read" not in redrive("topics", target).output
    for one in (p._replace(operations=(each,)) for p in needed for each in p.operations):
        users.revoke(redrive_prefix, [one])
        result = redrive("topics", target)
        said = f"{result.output} {result.exception}"
        name = f"{one.name}5s" if one.prefixed else one.name
        refused = f"grant {one.operations[0]} on topic {name};"
        assert refused in said or f"{name}: note: its settings cannot be read" in said
        users.grant(redrive_prefix, [one])


def test_a_delay_topic_that_no_policy_has_is_seen_with_what_is_listed(
    redrive, secured, redrive_secure_stack, redrive_prefix, caplog
):
    target, needed = secured(more=", sends=()")
    former = f"{redrive_prefix}.retry.9s"
    owner = load_settings(redrive_secure_stack.settings, environ={})
    KafkaTopics(owner).create(former, 1, {"message.timestamp.type": "LogAppendTime"})
    publisher = KafkaPublisher(owner)
    publisher.publish([Write(former, None, b"1"), Write(former, None, b"2")])
    publisher.close()
    said = f"no policy uses {former} any more, but about 2 records are waiting there"
    assert said in redrive("topics", target).output
    assert json.loads(redrive("topics", target, "--json").output)["left_behind"] == {former: 2}
    doctor = json.loads(redrive("doctor", target, "--json").output)
    assert said in [line["seen"] for line in doctor["findings"]]
    with caplog.at_level("INFO", "redrive"):
        preflight.check(load_app(target), load_settings(), target, engine="worker")
    assert said in caplog.text

    one_by_one = [
        Permission("delay topics", "topic", name, ("READ", "WRITE"))
        for name in load_app(target).delay_topics
    ]
    (prefixed,) = (one for one in needed if one.role == "delay topics")
    redrive_secure_stack.users.grant(redrive_prefix, one_by_one)
    redrive_secure_stack.users.revoke(redrive_prefix, [prefixed])
    said = rf"lacks permissions \({re.escape(str(prefixed))}\): grant"
    with pytest.raises(NotReadyError, match=said):
        preflight.check(load_app(target), load_settings(), target, engine="worker")


def test_topics_without_the_right_to_see_settings(redrive, secured):
    target, _ = secured()
    result = redrive("topics", target)
    assert result.exit_code == 0
    assert result.output.count("its settings cannot be read") == len(
        all_topic_names(load_app(target))
    )
    assert "Nothing is wrong, as far as this user is allowed to see." in result.output


def test_what_to_grant_is_printed_without_asking_anybody(redrive, shop, redrive_prefix):
    target = shop(delivery="outbox", more=', sends="invoices"')
    result = redrive("topics", target, "--acls", "--user", "eve")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# redrive run",
        "# redrive relay",
        "# redrive topics",
        "# redrive topics --apply",
        "# redrive dead",
        "# redrive dead replay",
        "# redrive parked",
        "# redrive parked hold",
        "# redrive rewind",
    ]
    grant = 'kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config admin.properties --add'
    assert f"{grant} --allow-principal 'User:eve' --operation Write --topic 'invoices'" in lines
    sys.modules.pop(target.partition(":")[0], None)
    unnamed = redrive("topics", shop(), "--acls")
    assert "--allow-principal 'User:USER'" in unnamed.output
