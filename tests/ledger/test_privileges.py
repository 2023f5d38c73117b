"""The privileges that docs/reference/ledger.md grants are enough, and not more than is needed."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import psycopg
import pytest
from relaying import Post

from redrive.ledger.migrating import migrate, require
from redrive.ledger.outbox import Outbound, Outbox
from redrive.record import Write

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "ledger.md"


@pytest.fixture
def roles(redrive_database):
    """The three roles, as documented, with names of their own: roles are of the whole server."""
    suffix = uuid.uuid4().hex[:8]
    names = {name: f"{name}_{suffix}" for name in ("redrive_migration", "shop_app", "shop_relay")}
    block = re.search(r"```sql\n(-- 1\. migrates.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert block is not None
    text = block[1]
    for name, own in names.items():
        text = text.replace(name, own)
    first, later = text.split("-- 2.")
    with psycopg.connect(redrive_database, autocommit=True) as admin:
        for own in names.values():
            admin.execute(f"create role {own}")
        admin.execute(first[first.index("create schema redrive") :])
        admin.execute(f"set role {names['redrive_migration']}")
        migrate(admin)
        admin.execute("reset role")
        admin.execute("-- 2." + later)
        yield names
        for own in names.values():
            admin.execute(f"drop owned by {own} cascade")
            admin.execute(f"drop role {own}")


@pytest.fixture
def acting(redrive_database, roles):
    """A connection as one of the roles."""
    opened = []

    def act(role):
        connection = psycopg.connect(redrive_database, autocommit=True)
        opened.append(connection)
        connection.execute(f"set role {roles[role]}")
        return connection

    yield act
    for connection in opened:
        connection.close()


def refused(connection, *statements):
    for statement in statements:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_apps_write_and_do_not_read_what_they_send(acting):
    app = acting("shop_app")
    require(app)
    Outbox("shop").insert(app, [Outbound(Write("orders", b"k", b"v"), "one")])
    app.execute(
        "insert into redrive.inbox (app, scope, id, state, attempt, source)"
        " values ('shop', 'o', 'a', 'parked', 1, 'o[0]@1')"
    )
    app.execute("update redrive.inbox set state = 'done' where app = 'shop'")
    app.execute("delete from redrive.inbox where at < now()")
    app.execute("delete from redrive.sent where at < now()")
    refused(
        app,
        "select * from redrive.outbox",
        "delete from redrive.outbox",
        "update redrive.outbox set topic = 'other'",
        "drop table redrive.outbox",
        "create table redrive.own (id integer)",
        "insert into redrive.migration values (9, 'own')",
    )


def test_a_relay_needs_no_more_than_its_role(
    acting, roles, redrive_database, redrive_stack, redrive_topic
):
    topic = redrive_topic()
    Outbox("shop").insert(acting("shop_app"), [Outbound(Write(topic, b"k", b"v"))])
    as_relay = f"{redrive_database}&options=-crole%3D{roles['shop_relay']}"
    post = Post(redrive_stack.bootstrap, as_relay, "shop")
    post.drain()
    assert post.count(topic) == 1
    assert post.waiting() == 0


def test_relays_read_and_delete(acting):
    Outbox("shop").insert(acting("shop_app"), [Outbound(Write("orders", b"k", b"v"))])
    relay = acting("shop_relay")
    require(relay)
    assert relay.execute("delete from redrive.outbox returning topic").fetchall() == [("orders",)]
    refused(
        relay,
        "select * from redrive.inbox",
        "update redrive.outbox set topic = 'other'",
        "insert into redrive.sent values ('shop', 'a')",
    )
