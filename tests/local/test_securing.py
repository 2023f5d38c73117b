"""A secured stack: who gets in, and what they may do there."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from redrive.config import load_settings
from redrive.errors import LocalError, PublishError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import BrokerError
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.local import lifecycle, securing
from redrive.local.plan import Plan
from redrive.permissions import Permission
from redrive.record import Write


def settings_of(given, folder: Path = Path("/nowhere")):
    return load_settings(given, environ={}, folder=folder)


@pytest.fixture
def topic(redrive_secure_stack, redrive_prefix) -> str:
    KafkaTopics(settings_of(redrive_secure_stack.settings)).create(redrive_prefix, 1, {})
    return redrive_prefix


def plan_of(stack) -> Plan:
    plan = Plan.load(lifecycle.local_folder(stack.home))
    assert plan is not None
    return plan


def may(topic: str, *operations: str) -> list[Permission]:
    return [Permission("source topics", "topic", topic, operations)]


def write(given, topic: str) -> None:
    publisher = KafkaPublisher(settings_of(given))
    try:
        publisher.publish([Write(topic, b"key", b"value")])
    finally:
        publisher.close()


@pytest.mark.parametrize("certificate", [False, True])
def test_a_user_may_do_what_was_granted_until_it_is_taken_away(
    redrive_secure_stack, topic, certificate
):
    mine = redrive_secure_stack.add_user(topic, certificate=certificate)
    assert Admin(settings_of(mine)).names() == [], "not even to know that there is a topic"
    redrive_secure_stack.users.grant(topic, may(topic, "WRITE"))
    assert Admin(settings_of(mine)).names() == [topic]
    write(mine, topic)
    redrive_secure_stack.users.revoke(topic, may(topic, "WRITE"))
    # What the broker refuses first is chance: the topic, or the id that every producer asks for.
    with pytest.raises(PublishError, match=r"AUTHORIZATION_FAILED|failed fatally"):
        write(mine, topic)


def test_what_several_purposes_need_is_granted_and_revoked_once(redrive_secure_stack, topic):
    both = [*may(topic, "READ"), *may(topic, "READ", "WRITE")]
    mine = redrive_secure_stack.add_user(topic, both)
    write(mine, topic)
    redrive_secure_stack.users.revoke(topic, both)
    assert Admin(settings_of(mine)).names() == []


def test_passwords_and_certificates_that_are_not_its_own_are_refused(
    redrive_secure_stack, tmp_path
):
    right = redrive_secure_stack.settings["security"]
    other = securing.Securing(tmp_path / "other")
    other.prepare()
    mutual = plan_of(redrive_secure_stack).tls_bootstrap
    for wrong in (
        {"security": {**right, "password": "guessed"}},
        {"security": {**right, "ca": str(other.ca)}},
        {"security": {"protocol": "PLAINTEXT"}},
        {"bootstrap": mutual},
        {"bootstrap": mutual, "security": {"protocol": "SSL", "ca": right["ca"]}},
        {"bootstrap": mutual, "security": other.by_certificate("shop") | {"ca": right["ca"]}},
    ):
        hurry = {"librdkafka": {"socket.timeout.ms": 500}}
        given = {**redrive_secure_stack.settings, **wrong, **hurry}
        with pytest.raises(BrokerError):
            Admin(settings_of(given), patience=0.1).topics(["any"])


def test_the_ports_for_certificates_let_nobody_else_in(redrive_secure_stack):
    """Neither clients nor whoever would play the controller's peer."""
    (broker,) = plan_of(redrive_secure_stack).brokers
    trusting = ssl.create_default_context(cafile=redrive_secure_stack.settings["security"]["ca"])

    def answer(port: int) -> bytes:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
        ):
            wrapped.send(b"\0")
            return wrapped.recv(1)

    for port in (broker.tls_port, broker.controller_port):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            answer(port)


def test_secrets_are_in_files_that_only_their_owner_can_read(redrive_secure_stack, topic):
    redrive_secure_stack.add_user(topic)
    redrive_secure_stack.add_user(topic, certificate=True)
    folder = redrive_secure_stack.home / "local" / "security"
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}
    assert all(name.endswith(".pem") for name, mode in modes.items() if mode != 0o600)
    assert modes["broker-keystore.pem"] == modes[f"{topic}.key"] == 0o600
    secrets = [each.read_text() for each in folder.glob("*.password")]
    assert len(secrets) >= 2
    everybody = " ".join(
        argument
        for process in psutil.process_iter(["cmdline"])
        for argument in process.info["cmdline"] or ()
    )
    assert not any(secret in everybody for secret in secrets)


@pytest.mark.parametrize("name", ["", "a b", "x'y", "../up", "admin", "broker"])
def test_names_that_users_cannot_have(redrive_secure_stack, name):
    with pytest.raises(LocalError, match=r"name consists of|may do everything"):
        redrive_secure_stack.add_user(name)


def test_a_stack_that_is_not_secured_has_no_users(redrive_stack):
    with pytest.raises(LocalError, match="is not secured"):
        redrive_stack.add_user("shop")


SHOP = """
from redrive import App, RetryPolicy
app = App("shop", retry=RetryPolicy("5s"))

@app.handler("orders")
def orders(record, ctx): ...
"""


def test_the_command_says_what_to_export_and_shows_no_password(home, tmp_path):
    up = home.run("up", "--secure")
    assert up.returncode == 0, up.stderr
    status = json.loads(home.run("status", "--json").stdout)
    password = Path(status["security"]["password_file"]).read_text()
    shown = json.loads(home.run("status", "--json", "--show-password").stdout)
    assert shown["security"]["password"] == password

    (tmp_path / "shop.py").write_text(SHOP)
    env = {**home.env, "PYTHONPATH": str(tmp_path)}
    command = home.command("user", "eve", "--for", "shop:app")
    eve = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    its = (home.folder / "local" / "security" / "eve.password").read_text()
    said = up.stdout + up.stderr + eve.stdout + eve.stderr
    assert password not in said
    assert its not in said

    administrator = AdminClient(client_of(exported(up.stdout)))
    users = {one.principal for one in every_acl(administrator)}
    assert users == {"User:eve"}
    nothing_yet = AdminClient(client_of(exported(eve.stdout))).list_topics(timeout=10)
    assert not nothing_yet.topics


def exported(said: str) -> dict[str, str]:
    """The variables, as a shell that evaluates the lines has them."""
    lines = "\n".join(line for line in said.splitlines() if line.startswith("export "))
    shell = subprocess.run(
        ["sh", "-c", f"{lines}\nenv -0"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = (one.partition("=") for one in shell.stdout.split("\0") if one)
    return {name: value for name, _, value in pairs if name.startswith("REDRIVE_")}


def client_of(environ: dict[str, str]) -> dict[str, object]:
    from redrive.kafka.config import admin_config

    return admin_config(load_settings(environ=environ, folder=Path("/nowhere")))


def every_acl(admin: AdminClient) -> list:
    from redrive.kafka.rdkafka import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    return admin.describe_acls(everything).result(10)


def test_a_certificate_that_is_not_trusted_names_the_setting(redrive_secure_stack):
    given = redrive_secure_stack.settings
    security = {name: value for name, value in given["security"].items() if name != "ca"}
    stranger = settings_of({**given, "security": security})
    with pytest.raises(BrokerError, match=r"does not trust .* certificate: set security\.ca"):
        Admin(stranger, patience=3).names()
