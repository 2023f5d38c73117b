"""PostgresStore: units of work in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from redrive.delivery.store import Found, InboxId, StoreDownError, StoreNotAllowedError
from redrive.errors import RedriveError
from redrive.guarantees import Guarantee
from redrive.ledger import privileges
from redrive.ledger.connection import Connection
from redrive.ledger.inbox import Inbox
from redrive.ledger.names import DEFAULT_SCHEMA
from redrive.ledger.outbox import Outbox
from redrive.ledger.pool import ConnectionPool
from redrive.ledger.session import PostgresSession
from redrive.processing.calls.lots import GivenUpError

_T = TypeVar("_T")

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
        self._pool = ConnectionPool(dsn, connections, f"redrive {app}")
        self._schema = schema
        self._privileges = privileges.needed(guarantee)
        self._inbox = Inbox(app, schema, expires=[*_EXPIRING & self._privileges.keys()])
        self._outbox = Outbox(app, schema)

    @asynccontextmanager
    async def session(self, *, is_async: bool) -> AsyncIterator[PostgresSession]:
        """A transaction, rolled back unless it was committed."""
        async with self._pool.acquire(is_async=is_async) as connection:
            session = await self._started(connection, is_async=is_async)
            try:
                yield session
            except BaseException as error:
                await session.roll_back(error)
                if isinstance(error, StoreNotAllowedError):
                    raise await self._explained(connection, error) from error
                if isinstance(error, GivenUpError):
                    # Somebody is about to terminate it: nobody else may get it meanwhile.
                    connection.raw.pgconn.finish()
                raise

    async def expire(self, *, older_than: int, is_async: bool) -> bool:
        """Forget some of what is older than that, in milliseconds; True: there may be more."""
        async with self._pool.acquire(is_async=is_async) as connection:
            return await self._inbox.expire(connection, older_than)

    async def known(
        self, ids: Collection[InboxId], *, is_async: bool = False
    ) -> dict[InboxId, Found]:
        """What is known of these ids; nothing is claimed."""
        async with self._pool.acquire(is_async=is_async) as connection:
            return await self._allowed(connection, self._inbox.known(connection, ids))

    async def forget_done(self, sources: Mapping[InboxId, str], *, is_async: bool = False) -> int:
        """Forget these ids where they are done, by the record at that place; returns how many."""
        async with self._pool.acquire(is_async=is_async) as connection:
            return await self._allowed(connection, self._inbox.forget_done(connection, sources))

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._pool.forget_idle()

    async def _allowed(self, connection: Connection, asked: Awaitable[_T]) -> _T:
        """What is returned; where a privilege is missing, an error says which."""
        try:
            return await asked
        except StoreNotAllowedError as error:
            raise await self._explained(connection, error) from error

    async def _explained(
        self, connection: Connection, error: StoreNotAllowedError
    ) -> StoreNotAllowedError:
        """The same error, with everything that is missing and how to grant it, as far as known."""
        try:
            rows = await connection.fetch(*privileges.asking(self._schema, self._privileges))
        except RedriveError:
            rows = []
        if not rows:  # a row-level policy, or granted by now: the database's own message says more
            return error
        return StoreNotAllowedError(privileges.sentence(self._schema, privileges.told(rows)))

    async def _started(self, connection: Connection, *, is_async: bool) -> PostgresSession:
        session = PostgresSession(connection, self._inbox, self._outbox, self._pool)
        try:
            await session.start()
        except StoreDownError:
            # The database may have been restarted: the idle connections are as dead as this one.
            self._pool.forget_idle()
            connection.raw.pgconn.finish()
            fresh = await self._pool.connect(is_async=is_async)
            connection.raw = fresh.raw
            await session.start()
        return session
