"""An app with dead letters on a real Kafka, and commands that are killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest
from engine_fixtures import engine, start, world
from shops import Shop

from redrive.ledger.migrating import migrate

__all__ = ["engine", "start", "world"]


@pytest.fixture
def shop(redrive_stack, redrive_prefix, tmp_path, monkeypatch) -> Iterator[Callable[..., Shop]]:
    """Makes an app in a module of its own, with its topics."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    made: list[Shop] = []

    def make(**options: object) -> Shop:
        made.append(Shop(redrive_stack, redrive_prefix, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def database(redrive_database, monkeypatch) -> Iterator[psycopg.Connection]:
    """A PostgreSQL with redrive's tables, for the commands of a test."""
    monkeypatch.setenv("REDRIVE_DATABASE", redrive_database)
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
        yield connection
