"""A privilege that is taken away: one sentence with the GRANT to run, and nothing is written."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from relaying import Post
from sides import Side

from redrive import App, RetryPolicy
from redrive.delivery.store import StoreNotAllowedError
from redrive.errors import LedgerError
from redrive.guarantees import GUARANTEES, WITH_DATABASE, Guarantee
from redrive.ids import header
from redrive.ledger import privileges
from redrive.ledger.migrating import migrate
from redrive.ledger.postgres_store import PostgresStore
from redrive.record import Write


@pytest.fixture
def admin(database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def role(admin) -> Iterator[str]:
    """A role with a name that has to be quoted, and no privileges yet."""
    name = f"Shop-{uuid.uuid4().hex[:8]}"
    admin.execute(f'create role "{name}"')
    yield name
    admin.execute(f'drop owned by "{name}" cascade')
    admin.execute(f'drop role "{name}"')


@pytest.fixture
def acting(database, role) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'set role "{role}"')
        yield connection


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_what_is_said_to_be_missing_is_enough(admin, acting, role, delivery):
    needed = privileges.needed(GUARANTEES[delivery])
    grants = privileges.missing(acting, "redrive", needed)
    assert grants.startswith(f'grant usage on schema redrive to "{role}"; grant select on redrive.')
    assert ("redrive.inbox" in grants, "redrive.outbox" in grants) == (
        GUARANTEES[delivery].inbox, GUARANTEES[delivery].outbox,
    )  # fmt: skip
    admin.execute(grants)
    assert privileges.missing(acting, "redrive", needed) == ""


def test_only_what_is_missing_is_said_and_schemas_are_quoted(admin, acting, role):
    migrate(admin, "Own ledger")
    needed = privileges.needed(GUARANTEES["idempotent"])
    admin.execute(privileges.missing(acting, "Own ledger", needed))
    admin.execute(f'revoke insert, update on "Own ledger".inbox from "{role}"')
    assert privileges.missing(acting, "Own ledger", needed) == (
        f'grant insert, update on "Own ledger".inbox to "{role}";'
    )


def test_a_ledger_that_is_not_there_is_no_matter_of_privileges(acting):
    assert privileges.missing(acting, "elsewhere", privileges.RELAY) == ""


@pytest.fixture
def side(admin, acting, role, database) -> Iterator[Callable[[App], Side]]:
    """Makes processes of apps, each with exactly what its delivery needs."""
    made: list[Side] = []

    def make(app: App) -> Side:
        needed = privileges.needed(GUARANTEES[app.delivery])
        admin.execute(privileges.missing(acting, "redrive", needed))
        made.append(Side(f"{database}&options=-crole%3D{role}", app))
        return made[-1]

    yield make
    for each in made:
        each.close()


def shop(delivery: str) -> App:
    app = App("shop", delivery=delivery, retry=RetryPolicy("1h"))  # type: ignore[arg-type]  # -- a parameter

    @app.handler("orders", id=header("id"))
    def handle(record, ctx):
        if record.value == b"fails":
            raise ValueError(record.value)
        if delivery != "idempotent":
            ctx.send("told", record.value)

    return app


@pytest.mark.parametrize(
    "case",
    [
        ("idempotent", "insert on redrive.inbox", "passes"),
        ("idempotent", "update on redrive.inbox", "fails"),
        ("outbox", "insert on redrive.outbox", "passes"),
    ],
)
def test_a_privilege_that_is_taken_away(side, admin, role, case):
    delivery, privilege, value = case
    process = side(shop(delivery))
    process.send(("before", value))
    process.run()
    written = process.hops()
    admin.execute(f'revoke {privilege} from "{role}"')
    process.send(("after", value))
    process.run()
    error = process.not_allowed
    assert isinstance(error, StoreNotAllowedError)
    assert f'`grant {privilege} to "{role}";`' in str(error)
    for _ in range(5):  # whatever is tried until the run has ended
        process.clock.advance("20s")
        process.run()
    assert process.hops() == written
    admin.execute(f'grant {privilege} to "{role}"')
    process.clock.advance("20s")
    process.run()
    assert process.not_allowed is None
    assert process.hops() == 2 * written


def test_a_privilege_that_is_missing_for_a_record_that_is_buried_without_a_call(side, admin, role):
    process = side(shop("idempotent"))
    admin.execute(f'revoke delete on redrive.inbox from "{role}"')
    # It says that redrive wrote it, and cannot be read.
    headers = (("redrive-app", b"shop"), ("redrive-origin-topic", b"orders"))
    process.broker.publish([Write("orders", b"k", b"broken", headers)])
    process.run()
    assert f'`grant delete on redrive.inbox to "{role}";`' in str(process.not_allowed)
    assert process.dead == []


@pytest.fixture
def posts(redrive_stack, redrive_prefix, database, role) -> tuple[Post, Post]:
    """An outbox, by its owner and by that role."""
    theirs = f"{database}&options=-crole%3D{role}"
    made = [Post(redrive_stack.bootstrap, dsn, redrive_prefix) for dsn in (database, theirs)]
    return made[0], made[1]


def test_a_relay_ends_with_what_it_lacks(admin, acting, role, posts, redrive_topic):
    admin.execute(privileges.missing(acting, "redrive", privileges.RELAY))
    post, relay = posts
    topic = redrive_topic("out")
    post.send(Write(topic, b"k", b"1"))
    relay.drain()
    admin.execute(f'revoke delete on redrive.outbox from "{role}"')
    post.send(Write(topic, b"k", b"2"))
    with pytest.raises(LedgerError, match=f'`grant delete on redrive.outbox to "{role}";`'):
        relay.drain()
    assert post.waiting() == 1


def test_expiry_needs_no_more_than_the_delivery_does(admin, acting, role, database):
    for guarantee in (Guarantee("inbox", "flush"), Guarantee("outbox", "flush")):
        admin.execute(f'drop owned by "{role}"')
        admin.execute(privileges.missing(acting, "redrive", privileges.needed(guarantee)))
        store = PostgresStore(
            f"{database}&options=-crole%3D{role}", "shop", connections=1, guarantee=guarantee
        )
        expiring = store.expire(older_than=1, is_async=False)
        with pytest.raises(StopIteration, match="False"):
            expiring.send(None)
        store.close()
