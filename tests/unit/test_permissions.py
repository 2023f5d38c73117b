"""What an app must be allowed to do: by its choices, and as the documentation says it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from redrive.app import App
from redrive.kafka.transactional_producer import transactional_id
from redrive.permissions import (
    Permission,
    Purpose,
    Role,
    kafka_acls,
    lacking,
    permissions,
    transactional_prefix,
)
from redrive.policy import RetryPolicy
from redrive.record import TopicPartition

ROOT = Path(__file__).parents[2]


def make_app(
    *,
    redeliver: Any = "handler",
    sends: Any = ("invoices",),
    delays: Any = ("5s 1h",),
    **choices: Any,
) -> App:
    app = App("shop", retry=RetryPolicy(*delays, redeliver=redeliver), **choices)
    app.handler("orders", sends=sends)(lambda record, ctx: None)
    return app


VARIANTS = [
    make_app(),
    make_app(redeliver="origin"),
    make_app(sends=("invoices", "orders")),
    make_app(delivery="idempotent"),
    make_app(delivery="outbox"),
    make_app(delivery="idempotent+outbox"),
    make_app(delivery="transaction"),
    make_app(delays=()),
]


def shown(app: App, purpose: Purpose = "run") -> list[str]:
    return [str(one) for one in permissions(app, purpose)]


def test_of_a_run():
    assert shown(make_app(sends=())) == [
        "READ on topic orders",
        "READ and WRITE on topics that begin with shop.retry.",
        "WRITE on topic shop.dead",
        "READ on group shop",
    ]


@pytest.mark.parametrize(
    ("choices", "more"),
    [
        ({"redeliver": "origin"}, "READ and WRITE on topic orders"),
        ({"sends": ("orders", "invoices")}, "READ and WRITE on topic orders"),
        ({"sends": ("orders", "invoices")}, "WRITE on topic invoices"),
        ({"delivery": "transaction"}, "WRITE on transactional ids that begin with shop/"),
    ],
)
def test_what_more_a_choice_needs(choices, more):
    assert more in shown(make_app(**choices))


def test_what_an_earlier_version_parked_can_be_read_without_any_policy():
    app = App("shop", was="store", retry=RetryPolicy())
    app.handler("orders")(lambda record, ctx: None)
    assert not app.delay_topics
    assert shown(app)[1:3] == [
        "READ on topics that begin with shop.retry.",
        "READ on topics that begin with store.retry.",
    ]
    assert shown(app)[-2:] == ["READ on group shop", "READ on group store"]


def test_with_an_outbox_the_relay_writes_what_is_sent():
    app = make_app(delivery="outbox", sends=("orders", "invoices"))
    assert "WRITE on topic invoices" not in shown(app)
    assert "READ on topic orders" in shown(app)
    assert shown(app, "relay") == ["WRITE on topic orders", "WRITE on topic invoices"]


def test_transactional_ids_begin_with_what_is_granted():
    place = TopicPartition("orders", 3)
    assert transactional_id("shop", place).startswith(transactional_prefix("shop"))


def test_what_is_lacking_and_what_nobody_knows():
    needed = [
        Permission("delay topics", "topic", "a", ("READ", "WRITE")),
        Permission("dead topic", "topic", "b", ("WRITE",)),
        Permission("group", "group", "a", ("READ",)),
        Permission("group", "group", "b", ("READ",)),
    ]
    allowed: Any = {
        ("topic", "a"): frozenset({"READ", "DESCRIBE"}),
        ("topic", "b"): None,
        ("group", "a"): frozenset({"READ", "DESCRIBE"}),
        ("group", "b"): frozenset(),
    }
    refused = [str(one) for one in lacking(needed, allowed)]
    assert refused == ["WRITE on topic a", "READ on group b"]


def test_as_kafkas_own_tool_wants_it():
    app = make_app(delivery="transaction", sends=())
    lines = kafka_acls(permissions(app), "shop")
    add = "--add --allow-principal 'User:shop'"
    assert lines[0] == f"{add} --operation Read --topic 'orders'"
    delays = "--topic 'shop.retry.' --resource-pattern-type prefixed"
    assert lines[1] == f"{add} --operation Read --operation Write {delays}"
    ids = "--operation Write --transactional-id 'shop/' --resource-pattern-type prefixed"
    assert lines[-1] == f"{add} {ids}"
    applying = kafka_acls(permissions(app, "topics --apply"), "shop")
    assert "--operation DescribeConfigs" in applying[0]
    assert "--operation AlterConfigs" in applying[-1]


# The table in docs/reference/permissions.md


def table() -> dict[tuple[str, str], str]:
    """Its cells, by role and purpose."""
    text = (ROOT / "docs/reference/permissions.md").read_text()
    section = text.partition("## Kafka\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    purposes = [re.sub(r"`(?:redrive )?|`", "", cell) for cell in rows[0][1:]]
    return {
        (row[0], purpose): cell
        for row in rows[2:]
        for purpose, cell in zip(purposes, row[1:], strict=True)
    }


def granted(app: App, role: str, purpose: Purpose) -> set[str]:
    found = [set(one.operations) for one in permissions(app, purpose) if one.role == role]
    return set().union(*found)


@pytest.mark.parametrize("purpose", get_args(Purpose))
@pytest.mark.parametrize("role", get_args(Role))
def test_the_documentation_says_the_same(role, purpose):
    cell = table()[role, purpose]
    each = [granted(app, role, purpose) for app in VARIANTS]
    always, ever = set.intersection(*each), set.union(*each)
    told = dict(re.findall(r"([A-Z_]+)( \(\d\))?", cell))
    assert set(told) == ever
    assert {name for name, note in told.items() if not note} == always


def test_the_documentation_knows_nothing_else():
    assert len(table()) == len(get_args(Role)) * len(get_args(Purpose))
