"""ConnectionPool: a bounded number, created when needed; callers wait for a free one.

Not psycopg's own pool: it connects in its own threads, so a caller that times out does not learn
why; and Spark's worker processes are forks, which have no threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from threading import Lock, Semaphore
from typing import Any, Final, NamedTuple

from psycopg import sql

from redrive.delivery.store import StoreDownError
from redrive.ledger.address import checked
from redrive.ledger.connection import (
    AsyncConnection,
    Connection,
    LentAsyncConnection,
    LentConnection,
    SyncConnection,
    is_broken,
    is_in_transaction,
    translated,
)
from redrive.tuning import CONNECT_SECONDS, END_BACKEND_MILLISECONDS, LOCK_TIMEOUT

_BACKEND: Final = sql.SQL(
    "select pid, backend_start, xact_start from pg_stat_activity where pid = pg_backend_pid()"
)
_END: Final = sql.SQL(
    "select pg_terminate_backend(pid, %s), xact_start is not distinct from %s"
    " from pg_stat_activity where pid = %s and backend_start = %s"
)


class Backend(NamedTuple):
    """A server process, identified beyond reuse of its pid; and when its transaction began."""

    pid: int
    started: datetime
    transaction: datetime


class ConnectionPool:
    """Up to `most` connections for threads, and as many for the event loop."""

    def __init__(self, dsn: str, most: int, name: str) -> None:
        self._dsn = checked(dsn)
        self._most = most
        self._name = name
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._free = Semaphore(most)
        self._in_use: set[Connection] = set()
        """By threads."""
        self._handed_on: set[Connection] = set()
        """Those of them whose slot was given to another."""
        self._on_loop: _OnLoop | None = None

    @asynccontextmanager
    async def acquire(self, *, is_async: bool) -> AsyncIterator[Connection]:
        """A connection, until the end of the block."""
        if is_async:
            async with self._loop_side().acquire(self) as connection:
                yield connection
            return
        self._free.acquire()
        own_place = True
        try:
            connection = self._from(self._idle) or await self.connect(is_async=False)
            with self._lock:
                self._in_use.add(connection)
            try:
                yield connection
            finally:
                own_place = self._came_back(connection)
                if own_place:
                    self.put_back(self._idle, connection)
                else:
                    _close(connection)
        finally:
            if own_place:
                self._free.release()

    async def break_off(self, connection: Connection, backend: Backend) -> bool:
        """Terminate a connection whose thread does not come back, and free its slot.

        By the server, which also ends what runs there: the connection itself belongs to its thread,
        and nobody else may touch it. Returns whether its transaction was still the one it began
        with, or it has come back meanwhile. After an error this may be tried again.
        """
        with self._lock:
            if connection not in self._in_use:
                return True
            first = connection not in self._handed_on
            self._handed_on.add(connection)
        if first:
            self._free.release()
        # With a connection of its own: the others may be busy for a long time.
        other = await self.connect(is_async=False)
        try:
            return await _end(other, backend)
        finally:
            _close(other)

    async def connect(self, *, is_async: bool) -> Connection:
        """A new connection."""
        options: dict[str, Any] = {
            "autocommit": True,  # a transaction is a block that says so
            "connect_timeout": CONNECT_SECONDS,
            "fallback_application_name": self._name,
        }
        with translated():
            connection: Connection
            if is_async:
                connection = AsyncConnection(
                    await LentAsyncConnection.connect(self._dsn, **options)
                )
            else:
                connection = SyncConnection(LentConnection.connect(self._dsn, **options))
        await connection.fetch(sql.SQL(f"set lock_timeout = {LOCK_TIMEOUT}"))
        return connection

    def forget_idle(self) -> None:
        """Close idle connections: they are from before the database went away."""
        side = self._on_loop
        for idle in (self._idle, [] if side is None else side.idle):
            while (connection := self._from(idle)) is not None:
                _close(connection)

    def put_back(self, idle: list[Connection], connection: Connection) -> None:
        """Keep a connection for the next caller, if it is still clean."""
        if is_broken(connection) or is_in_transaction(connection):
            _close(connection)
        else:
            with self._lock:
                idle.append(connection)

    def _came_back(self, connection: Connection) -> bool:
        """Mark it as returned; False: its slot was given to another."""
        with self._lock:
            self._in_use.discard(connection)
            own_place = connection not in self._handed_on
            self._handed_on.discard(connection)
            return own_place

    def _from(self, idle: list[Connection]) -> Connection | None:
        with self._lock:
            return idle.pop() if idle else None

    def _loop_side(self) -> _OnLoop:
        loop = asyncio.get_running_loop()
        if self._on_loop is None or self._on_loop.loop is not loop:
            self._on_loop = _OnLoop(loop, self._most)
        return self._on_loop


class _OnLoop:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.loop = loop
        self.idle: list[Connection] = []
        self._free = asyncio.Semaphore(most)

    @asynccontextmanager
    async def acquire(self, pool: ConnectionPool) -> AsyncIterator[Connection]:
        async with self._free:
            connection = self.idle.pop() if self.idle else await pool.connect(is_async=True)
            try:
                yield connection
            finally:
                pool.put_back(self.idle, connection)


async def backend_of(connection: Connection) -> Backend:
    """The server process of a connection, within its transaction."""
    [row] = await connection.fetch(_BACKEND)
    return Backend(*row)


async def _end(connection: Connection, backend: Backend) -> bool:
    """End a process of the server; returns whether its transaction was still that one."""
    parameters = (END_BACKEND_MILLISECONDS, backend.transaction, backend.pid, backend.started)
    found = await connection.fetch(_END, parameters)
    if not found:
        return True  # it has already ended, and its transaction with it
    [(ended, same)] = found
    if not ended and await connection.fetch(_END, parameters):
        raise StoreDownError(f"PostgreSQL: session {backend.pid} could not be terminated")
    return bool(same)


def _close(connection: Connection) -> None:
    # At once, without telling the server: also works if the event loop has ended.
    connection.raw.pgconn.finish()
