"""A privilege in the ledger that is taken away: the run ends with the GRANT that it lacks."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from redrive.errors import RedriveError
from redrive.guarantees import GUARANTEES
from redrive.ledger import privileges
from redrive.ledger.migrating import migrate

APP = """
    app = App(NAME, delivery="idempotent", database={dsn!r})

    @app.handler(topic("in"), id=lambda record: record.value.decode())
    def handle(record, ctx):
        note(value=record.value.decode())
"""


@pytest.fixture
def admin(redrive_database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
        yield connection


@pytest.fixture
def role(admin, redrive_prefix, redrive_database) -> Iterator[str]:
    """A role that has what the docs list for its delivery."""
    admin.execute(f'create role "{redrive_prefix}"')
    with psycopg.connect(acting(redrive_database, redrive_prefix)) as connection:
        needed = privileges.needed(GUARANTEES["idempotent"])
        grants = privileges.missing(connection, "redrive", needed)
    admin.execute(grants)
    yield redrive_prefix
    admin.execute(f'drop owned by "{redrive_prefix}" cascade')
    admin.execute(f'drop role "{redrive_prefix}"')


def acting(database: str, role: str) -> str:
    return f"{database}&options=-crole%3D{role}"


def test_a_run_ends_when_a_privilege_is_taken_away(world, start, admin, role, redrive_database):
    target = world.app(APP.format(dsn=acting(redrive_database, role)))
    run = start(target)
    world.send("in", b"before")
    world.wait(run, "the first", lambda: remembered(admin) == 1)

    admin.execute(f'revoke insert on redrive.inbox from "{role}"')
    world.send("in", b"after")
    with pytest.raises(RedriveError) as raised:
        world.wait(run, "it ends", lambda: False)
    assert f'`grant insert on redrive.inbox to "{role}";`' in str(raised.value)
    assert remembered(admin) == 1

    admin.execute(f'grant insert on redrive.inbox to "{role}"')
    run = start(target)
    world.wait(run, "the second", lambda: remembered(admin) == 2)
    assert {note["value"] for note in world.notes()} == {"before", "after"}


def remembered(admin: psycopg.Connection) -> int:
    row = admin.execute("select count(*) from redrive.inbox").fetchone()
    assert row is not None
    return row[0]
