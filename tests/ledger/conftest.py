"""A database with the ledger in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from processes import Process
from sides import Make, Side

from redrive import App
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


@pytest.fixture
def make(database, connection) -> Iterator[Make]:
    """Makes sides of one app; all share the database, in which there is a table for effects."""
    connection.execute("create table effect (value text not null)")
    connection.commit()
    made: list[Side] = []

    def side(app: App) -> Side:
        made.append(Side(database, app))
        return made[-1]

    yield side
    for each in made:
        each.close()


@pytest.fixture
def process(database, connection) -> Iterator[Callable[[App], Process]]:
    """Makes processes of apps, with a table for effects in their database."""
    connection.execute("create table effect (value text not null)")
    connection.commit()
    made: list[Process] = []

    def make(app: App) -> Process:
        made.append(Process(app, database))
        return made[-1]

    yield make
    for each in made:
        each.close()
