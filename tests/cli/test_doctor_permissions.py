"""`redrive doctor` and `redrive topics --acls` on a secured Kafka."""

from __future__ import annotations

import json
import sys

import pytest

from redrive.config import load_settings
from redrive.kafka.topics import KafkaTopics
from redrive.loading import load_app
from redrive.permissions import Permission, permissions
from redrive.topics import topic_names


@pytest.fixture
def secured(shop, redrive_secure_stack, redrive_prefix, monkeypatch):
    """An app with its topics; the environment is that of a user with what the app needs."""

    def make(**choices: str) -> tuple[str, list[Permission]]:
        target = shop(**choices)
        app = load_app(target)
        port = KafkaTopics(load_settings(redrive_secure_stack.settings, environ={}))
        for name in topic_names(app):
            stamped = {"message.timestamp.type": "LogAppendTime"} if ".retry." in name else {}
            port.create(name, 1, stamped)
        needed = permissions(app)
        given = redrive_secure_stack.add_user(redrive_prefix, needed)
        monkeypatch.setenv("REDRIVE_BOOTSTRAP", given["bootstrap"])
        for name, value in given["security"].items():
            monkeypatch.setenv(f"REDRIVE_SECURITY_{name.upper()}", value)
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
    assert {line["verdict"] for line in found.values()} == {"ok", "warning", "not checked"}
    assert found["permission to see settings"]["verdict"] == "warning"
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


def test_topics_without_the_right_to_see_settings(redrive, secured):
    target, _ = secured()
    result = redrive("topics", target)
    assert result.exit_code == 0
    assert result.output.count("its settings cannot be seen") == 4
    assert "Nothing is wrong, as far as this user may see." in result.output


def test_what_to_grant_is_printed_without_asking_anybody(redrive, shop, redrive_prefix):
    target = shop(delivery="outbox", more=', sends="invoices"')
    result = redrive("topics", target, "--acls", "--user", "eve")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# redrive run",
        "# redrive relay",
        "# redrive topics --apply",
    ]
    grant = 'kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config admin.properties --add'
    assert f"{grant} --allow-principal 'User:eve' --operation Write --topic 'invoices'" in lines
    sys.modules.pop(target.partition(":")[0], None)
    unnamed = redrive("topics", shop(), "--acls")
    assert "--allow-principal 'User:USER'" in unnamed.output
