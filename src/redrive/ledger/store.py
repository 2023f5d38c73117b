"""PostgresStore: units of work in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redrive.delivery.store import StoreDownError
from redrive.ledger.connections import Connections
from redrive.ledger.inbox import Inbox
from redrive.ledger.names import DEFAULT_SCHEMA
from redrive.ledger.outbox import Outbox
from redrive.ledger.session import PostgresSession
from redrive.ledger.wires import Wire
from redrive.processing.scope import GivenUpError


class PostgresStore:
    """The inbox and outbox of one app. May be used from many threads, and from one event loop."""

    def __init__(
        self, dsn: str, app: str, *, connections: int, schema: str = DEFAULT_SCHEMA
    ) -> None:
        self._connections = Connections(dsn, connections, f"redrive {app}")
        self._inbox = Inbox(app, schema)
        self._outbox = Outbox(app, schema)

    @asynccontextmanager
    async def session(self, *, is_async: bool) -> AsyncIterator[PostgresSession]:
        """A transaction, which is rolled back unless it was committed."""
        async with self._connections.take(is_async=is_async) as wire:
            session = await self._started(wire, is_async=is_async)
            try:
                yield session
            except BaseException as error:
                await session.roll_back(error)
                if isinstance(error, GivenUpError):
                    # Somebody is about to end it: nobody else may have it by then.
                    wire.connection.pgconn.finish()
                raise

    async def expire(self, *, older_than: int, is_async: bool) -> bool:
        """Forget some of what is older, in milliseconds; True: there may be more."""
        async with self._connections.take(is_async=is_async) as wire:
            return await self._inbox.expire(wire, older_than)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._connections.forget_idle()

    async def _started(self, wire: Wire, *, is_async: bool) -> PostgresSession:
        session = PostgresSession(wire, self._inbox, self._outbox, self._connections)
        try:
            await session.start()
        except StoreDownError:
            # The database may have been restarted: the others that wait here are as dead as this.
            self._connections.forget_idle()
            wire.connection.pgconn.finish()
            fresh = await self._connections.connect(is_async=is_async)
            wire.connection = fresh.connection
            await session.start()
        return session
