"""A database with the ledger in it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from redrive.ledger.migrating import migrate


@pytest.fixture
def database(redrive_database) -> str:
    """The DSN of a database with the ledger."""
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
    return redrive_database


@pytest.fixture
def connection(database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database) as connection:
        yield connection


@pytest.fixture
def other(database) -> Iterator[psycopg.Connection]:
    """A second connection, for rivals."""
    with psycopg.connect(database) as connection:
        yield connection
