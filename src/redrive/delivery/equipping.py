"""What a process needs for its app's delivery, beyond what every delivery needs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from redrive.delivery.group_publish import GroupPublish
from redrive.delivery.unit import Tools
from redrive.delivery.units import Units
from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.config import Settings
    from redrive.delivery.store import KnownIds
    from redrive.ledger.postgres_store import PostgresStore
    from redrive.ports import Clock, Publisher
    from redrive.processing.calls.scope import Scope


def equip(
    scope: Scope,
    settings: Settings,
    publisher: Publisher,
    clock: Clock,
    *,
    inbox_ttl: int | None = None,
    quiet: bool = False,
) -> Units | None:
    """Have lots run as units of work, where the app's delivery has a database.

    Nothing is connected before the first lot runs. Whoever has equipped a process closes the units
    at its end, after its executor.
    """
    app = scope.app
    guarantee = app.guarantee
    if not guarantee.database:
        return None
    store = _store(app, settings)
    tools = Tools(scope, guarantee, GroupPublish(publisher), clock, quiet)
    units = Units(tools, store, inbox_ttl=inbox_ttl)
    scope.units = units
    return units


def known_ids(app: App, settings: Settings) -> KnownIds | None:
    """What an operator asks for ids that are done; None: the app has no inbox."""
    return _store(app, settings) if app.guarantee.inbox else None


def _store(app: App, settings: Settings) -> PostgresStore:
    require_psycopg()
    from redrive.ledger.postgres_store import PostgresStore

    return PostgresStore(
        settings.dsn(),
        app.name,
        connections=app.database_connections,
        schema=settings.ledger_schema,
        guarantee=app.guarantee,
    )


def require_psycopg() -> None:
    """Raise the sentence that says how to install it, unless it is there."""
    if find_spec("psycopg") is None:
        raise ConfigurationError("psycopg is not installed: pip install 'redrive[postgres]'")
