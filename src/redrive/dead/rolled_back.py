"""RolledBack: a database connection for calls of which nothing may remain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from redrive.envelope import Envelope
from redrive.processing.work import Result

_BEGUN: Final = "savepoint redrive_trial"
_STILL_THERE: Final = "rollback to savepoint redrive_trial"
"""Also possible after an error, but in the transaction of the savepoint only."""


class RolledBack:
    """Takes the place of units of work: whatever a call does by `ctx.db` is rolled back.

    psycopg refuses `commit()` meanwhile, but not a COMMIT as a statement: that can only be noticed.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Any = None
        self._backend = 0
        self.ended = False
        """Whether the last call ended the transaction: what it had done before may remain."""

    def connection(self) -> Any:
        """The connection of the call under way."""
        return self._connection

    def forget(self, envelopes: list[Envelope]) -> None:
        """Nothing is buried by a trial, so that nothing is forgotten."""

    def end(self) -> None:
        """End the transaction of a call that hangs, in whatever way it hangs: it is rolled back."""
        import psycopg

        if self._connection is None or self._connection.closed:
            return
        # Where the database cannot be asked, it has ended it, too, or will.
        with suppress(psycopg.Error), psycopg.connect(self._dsn, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", (self._backend,))

    def around(self, call: Callable[[], Result]) -> Result:
        """Make a call in a transaction that is rolled back."""
        import psycopg

        with (
            psycopg.connect(self._dsn) as connection,
            connection.transaction(force_rollback=True),
        ):
            self._connection, self._backend = connection, connection.info.backend_pid
            connection.execute(_BEGUN)
            result = call()
            try:
                connection.execute(_STILL_THERE)
            except psycopg.Error as error:
                self.ended = _is_by_call(connection, error)
            else:
                self.ended = False
            return result

    async def around_async(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """The same for async handlers."""
        import psycopg

        async with (
            await psycopg.AsyncConnection.connect(self._dsn) as connection,
            connection.transaction(force_rollback=True),
        ):
            self._connection, self._backend = connection, connection.info.backend_pid
            await connection.execute(_BEGUN)
            result = await call()
            try:
                await connection.execute(_STILL_THERE)
            except psycopg.Error as error:
                self.ended = _is_by_call(connection, error)
            else:
                self.ended = False
            return result


def _is_by_call(connection: Any, error: BaseException) -> bool:
    """Whether the call has ended its transaction; a database that goes away rolls it back."""
    from psycopg.errors import InvalidSavepointSpecification

    closed: bool = connection.closed and not connection.broken
    return closed or isinstance(error, InvalidSavepointSpecification)
