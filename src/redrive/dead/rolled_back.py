"""RolledBack: a database connection for calls of which nothing may remain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redrive.envelope import Envelope
from redrive.processing.work import Result


class RolledBack:
    """Takes the place of units of work: whatever a call does by `ctx.db` is rolled back."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Any = None

    def connection(self) -> Any:
        """The connection of the call under way."""
        return self._connection

    def forget(self, envelopes: list[Envelope]) -> None:
        """Nothing is buried by a trial, so that nothing is forgotten."""

    def around(self, call: Callable[[], Result]) -> Result:
        """Make a call in a transaction that is rolled back."""
        import psycopg

        with (
            psycopg.connect(self._dsn) as self._connection,
            # A handler cannot commit within it: psycopg refuses.
            self._connection.transaction(force_rollback=True),
        ):
            return call()

    async def around_async(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """The same for async handlers."""
        import psycopg

        async with (
            await psycopg.AsyncConnection.connect(self._dsn) as self._connection,
            self._connection.transaction(force_rollback=True),
        ):
            return await call()
