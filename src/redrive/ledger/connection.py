"""Connection: one connection, sync or async, behind one interface.

All methods are coroutines; those of a sync connection never wait, and need no event loop. psycopg's
errors are translated to store errors here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Protocol

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.rows import tuple_row

from redrive.delivery.store import (
    StoreBusyError,
    StoreDownError,
    StoreNotAllowedError,
    StoreRefusedError,
)
from redrive.errors import ContextError
from redrive.policy import causes

Query = sql.SQL | sql.Composed
Row = tuple[Any, ...]
Block = Any
"""A psycopg transaction or savepoint, sync or async."""

BUSY: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)
REFUSED: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    UnicodeError,
    OverflowError,
)
"""Errors that are caused by the data of one record, and would not hit another."""


class Connection(Protocol):
    """One connection."""

    raw: Any
    """psycopg's own."""

    async def fetch(self, query: Query, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query; returns its rows, or an empty list."""
        ...

    async def enter(self) -> Block:
        """Begin a transaction, or within one a savepoint."""
        ...

    async def leave(self, block: Block, error: BaseException | None = None) -> None:
        """End it: roll back if there is an error."""
        ...


class LentConnection(psycopg.Connection[Any]):
    """What handlers get as `ctx.db`: theirs to use, but not to close."""

    def __enter__(self) -> NoReturn:
        raise not_yours("`with ctx.db` closes it")

    def close(self) -> NoReturn:
        """Never: other records need it."""
        raise not_yours("`close` would close it")


class LentAsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for an event loop."""

    async def __aenter__(self) -> NoReturn:
        raise not_yours("`async with ctx.db` closes it")

    async def close(self) -> NoReturn:
        """Never: other records need it."""
        raise not_yours("`close` would close it")


def not_yours(what: str) -> ContextError:
    """A handler tried to close a connection."""
    return ContextError(
        f"ctx.db belongs to redrive, and {what}: use ctx.db as it is; its work is committed with"
        " the record's outcome, and `with ctx.db.transaction():` lets part of it be rolled back"
    )


class SyncConnection:
    """A `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.raw = connection

    async def fetch(self, query: Query, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query; returns its rows."""
        with translated(), self.raw.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(query, parameters)
            return cursor.fetchall() if cursor.description is not None else []

    async def enter(self) -> Block:
        """Begin a transaction, or within one a savepoint."""
        with translated():
            block = self.raw.transaction()
            block.__enter__()
            return block

    async def leave(self, block: Block, error: BaseException | None = None) -> None:
        """End it."""
        with translated():
            block.__exit__(*_thrown(error))

    def run_at_once(self, statement: sql.SQL) -> None:
        """Run a statement, for callers that cannot await. Raises psycopg's errors."""
        with self.raw.cursor() as cursor:
            cursor.execute(statement)


class AsyncConnection:
    """A `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.raw = connection

    async def fetch(self, query: Query, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query; returns its rows."""
        with translated():
            async with self.raw.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(query, parameters)
                return await cursor.fetchall() if cursor.description is not None else []

    async def enter(self) -> Block:
        """Begin a transaction, or within one a savepoint."""
        with translated():
            block = self.raw.transaction()
            await block.__aenter__()
            return block

    async def leave(self, block: Block, error: BaseException | None = None) -> None:
        """End it."""
        with translated():
            await block.__aexit__(*_thrown(error))


@contextmanager
def translated() -> Iterator[None]:
    """Translate PostgreSQL's errors on redrive's own statements into store errors."""
    try:
        yield
    except BUSY as error:
        raise StoreBusyError(_told(error)) from error
    except REFUSED as error:
        raise StoreRefusedError(_told(error)) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreNotAllowedError(_told(error)) from error
    except psycopg.Error as error:
        raise StoreDownError(_told(error)) from error


def is_broken(connection: Connection) -> bool:
    """Whether the connection is unusable."""
    status: object = connection.raw.pgconn.status
    return status != ConnStatus.OK


def is_in_transaction(connection: Connection) -> bool:
    """Whether the transaction is still open, even if it has failed."""
    return _status(connection) in (TransactionStatus.INTRANS, TransactionStatus.INERROR)


def has_failed(connection: Connection) -> bool:
    """Whether a statement has failed, so that all others are refused until a rollback."""
    return _status(connection) == TransactionStatus.INERROR


def was_busy(error: BaseException) -> bool:
    """Whether a concurrent transaction was the reason."""
    return any(isinstance(cause, BUSY) for cause in causes(error))


def _status(connection: Connection) -> object:
    return connection.raw.pgconn.transaction_status


def _told(error: Exception) -> str:
    return f"PostgreSQL: {str(error).strip() or type(error).__name__}"


def _thrown(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)
