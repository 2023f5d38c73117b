"""The ledger's schema: forward only, once, whoever does it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from typer.testing import CliRunner

from redrive.cli.commands import app as cli
from redrive.coroutines import run_sync
from redrive.delivery.store import Claim, Found, InboxId
from redrive.errors import ConfigurationError, LedgerError
from redrive.ledger.header_columns import add_header_columns
from redrive.ledger.migrating import Migration, migrate, migrations, require, status
from redrive.ledger.postgres_store import PostgresStore


@pytest.fixture
def fresh(redrive_database):
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        yield connection


def tables(connection, schema="redrive"):
    found = connection.execute("select tablename from pg_tables where schemaname = %s", [schema])
    return {name for (name,) in found}


def test_everything_is_applied_once(fresh):
    assert migrate(fresh) == [*migrations()]
    assert migrate(fresh) == []
    assert tables(fresh) == {"migration", "inbox", "outbox", "sent", "header_column"}


def test_numbers_are_without_gaps_or_repetition():
    assert [one.version for one in migrations()] == [*range(1, len(migrations()) + 1)]


def test_a_later_migration_is_applied_to_what_is_there(fresh):
    migrate(fresh)
    later = Migration(1000, "later", "create table later (id integer); create index on later (id)")
    assert migrate(fresh, known=[*migrations(), later]) == [later]
    assert "later" in tables(fresh)
    assert status(fresh).complete  # an older redrive works with what a newer one added to


def test_a_migration_that_fails_leaves_nothing(fresh):
    good = Migration(1, "good", "create table good (id integer)")
    bad = Migration(2, "bad", "create table good (id integer)")
    with pytest.raises(psycopg.errors.DuplicateTable):
        migrate(fresh, known=[good, bad])
    assert tables(fresh) == set()
    assert status(fresh, known=[good, bad]).missing == (good, bad)


def test_several_at_once_apply_it_once(redrive_database):
    def one(_):
        with psycopg.connect(redrive_database, autocommit=True) as connection:
            return migrate(connection)

    with ThreadPoolExecutor(8) as pool:
        applied = [*pool.map(one, range(8))]
    assert sorted(map(len, applied)) == [0] * 7 + [len(migrations())]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_several_at_once_whatever_isolation_is_the_default(redrive_database, level):
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set default_transaction_isolation = '{level}'")
    test_several_at_once_apply_it_once(redrive_database)


def test_ids_from_before_they_belonged_to_a_topic_are_all_remembered(fresh, redrive_database):
    migrate(fresh, known=migrations()[:1])
    known = [
        ("7", "done", 1, b"a", "orders[3]@17"),
        ("8", "parked", 2, b"b", "my.refunds-2[0]@0"),
        ("9", "done", 1, None, "orders[12]@9000000000"),
    ]
    for row in known:
        fresh.execute(
            "insert into redrive.inbox (app, id, state, attempt, fingerprint, source)"
            " values ('shop', %s, %s, %s, %s, %s)",
            row,
        )
    assert [one.version for one in migrate(fresh)] == [2]
    store = PostgresStore(redrive_database, "shop", connections=1)
    scopes = ["orders", "my.refunds-2", "orders"]
    claims = [
        Claim(InboxId(scope, name), attempt, fingerprint, source)
        for scope, (name, _, attempt, fingerprint, source) in zip(scopes, known, strict=True)
    ]

    async def claimed():
        async with store.session(is_async=False) as session:
            return await session.claim(sorted(claims)), await session.commit()

    found, _ = run_sync(claimed())
    assert found == {
        claim.id: Found(state, *claim[1:])
        for claim, (_, state, *_) in zip(claims, known, strict=True)
    }
    store.close()


def test_headers_that_would_share_a_column_are_refused(fresh):
    migrate(fresh)
    add_header_columns(fresh, ["trace-id"])
    add_header_columns(fresh, ["trace-id"])
    for headers in (["Trace_Id"], ["content-type", "content.type"]):
        with pytest.raises(ConfigurationError, match="would share the column header_"):
            add_header_columns(fresh, headers)
    assert fresh.execute("select header from redrive.header_column").fetchall() == [("trace-id",)]


def test_a_schema_of_another_name(fresh):
    migrate(fresh, "shop_ledger")
    assert "outbox" in tables(fresh, "shop_ledger")
    assert tables(fresh) == set()
    assert status(fresh, "shop_ledger").complete


def test_what_is_missing_is_one_sentence(fresh):
    with pytest.raises(LedgerError, match="does not exist yet: run `redrive ledger migrate`"):
        require(fresh)
    migrate(fresh)
    require(fresh)
    fresh.execute("delete from redrive.migration")
    fresh.execute("insert into redrive.migration values (0, 'of old')")
    with pytest.raises(LedgerError, match="is behind"):
        require(fresh)


def test_the_command(redrive_database, monkeypatch):
    monkeypatch.setenv("REDRIVE_DATABASE", redrive_database)
    run = CliRunner().invoke
    missing = run(cli, ["ledger", "status"])
    assert missing.exit_code == 1
    assert "0001 inbox_and_outbox: missing" in missing.output
    assert run(cli, ["ledger", "migrate"]).output.startswith("applied 0001 inbox_and_outbox")
    assert "nothing to do" in run(cli, ["ledger", "migrate"]).output
    complete = run(cli, ["ledger", "status", "--json"])
    assert complete.exit_code == 0
    shown = json.loads(complete.output)
    assert shown["complete"]
    assert [one["version"] for one in shown["applied"]] == [one.version for one in migrations()]
    assert shown["missing"] == shown["outbox"] == []


def test_the_command_without_a_database_says_how_to_give_one(monkeypatch):
    monkeypatch.delenv("REDRIVE_DATABASE", raising=False)
    answer = CliRunner().invoke(cli, ["ledger", "migrate"])
    assert "no database: set REDRIVE_DATABASE" in str(answer.exception)


def test_a_database_that_is_not_there_is_one_sentence_without_its_password():
    dsn = "postgresql://me:hidden@127.0.0.1:1/none"
    answer = CliRunner().invoke(cli, ["ledger", "status", "--database", dsn])
    assert "cannot be reached" in str(answer.exception)
    assert "hidden" not in str(answer.exception)
