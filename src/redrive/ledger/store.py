"""PostgresStore: units of work in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from redrive.delivery.store import StoreDownError, StoreNotAllowedError
from redrive.errors import RedriveError
from redrive.guarantees import Guarantee
from redrive.ledger import privileges
from redrive.ledger.connections import Connections
from redrive.ledger.inbox import Inbox
from redrive.ledger.names import DEFAULT_SCHEMA
from redrive.ledger.outbox import Outbox
from redrive.ledger.session import PostgresSession
from redrive.ledger.wires import Wire
from redrive.processing.scope import GivenUpError

_BOTH: Final = Guarantee("both", "flush")
_EXPIRING: Final = frozenset(("inbox", "sent"))


class PostgresStore:
    """The inbox and outbox of one app. For many threads, and one event loop."""

    def __init__(
        self,
        dsn: str,
        app: str,
        *,
        connections: int,
        schema: str = DEFAULT_SCHEMA,
        guarantee: Guarantee = _BOTH,
    ) -> None:
        self._connections = Connections(dsn, connections, f"redrive {app}")
        self._schema = schema
        self._privileges = privileges.needed(guarantee)
        self._inbox = Inbox(app, schema, expires=[*_EXPIRING & self._privileges.keys()])
        self._outbox = Outbox(app, schema)

    @asynccontextmanager
    async def session(self, *, is_async: bool) -> AsyncIterator[PostgresSession]:
        """A transaction, rolled back unless it was committed."""
        async with self._connections.take(is_async=is_async) as wire:
            session = await self._started(wire, is_async=is_async)
            try:
                yield session
            except BaseException as error:
                await session.roll_back(error)
                if isinstance(error, StoreNotAllowedError):
                    raise await self._explained(wire, error) from error
                if isinstance(error, GivenUpError):
                    # Somebody is about to terminate it: nobody else may get it meanwhile.
                    wire.connection.pgconn.finish()
                raise

    async def expire(self, *, older_than: int, is_async: bool) -> bool:
        """Forget some of what is older than that, in milliseconds; True: there may be more."""
        async with self._connections.take(is_async=is_async) as wire:
            return await self._inbox.expire(wire, older_than)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._connections.forget_idle()

    async def _explained(self, wire: Wire, error: StoreNotAllowedError) -> StoreNotAllowedError:
        """The same error, with everything that is missing and how to grant it, as far as known."""
        try:
            rows = await wire.fetch(*privileges.asking(self._schema, self._privileges))
        except RedriveError:
            rows = []
        if not rows:  # a row-level policy, or granted by now: the database's own message says more
            return error
        return StoreNotAllowedError(privileges.sentence(self._schema, privileges.told(rows)))

    async def _started(self, wire: Wire, *, is_async: bool) -> PostgresSession:
        session = PostgresSession(wire, self._inbox, self._outbox, self._connections)
        try:
            await session.start()
        except StoreDownError:
            # The database may have been restarted: the idle connections are as dead as this one.
            self._connections.forget_idle()
            wire.connection.pgconn.finish()
            fresh = await self._connections.connect(is_async=is_async)
            wire.connection = fresh.connection
            await session.start()
        return session
