"""Connections: a bounded number, created when needed; callers wait for a free one.

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
from redrive.ledger.wires import (
    AsyncWire,
    LentAsyncConnection,
    LentConnection,
    SyncWire,
    Wire,
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


class Connections:
    """Up to `most` connections for threads, and as many for the event loop."""

    def __init__(self, dsn: str, most: int, name: str) -> None:
        self._dsn = checked(dsn)
        self._most = most
        self._name = name
        self._lock = Lock()
        self._idle: list[Wire] = []
        self._free = Semaphore(most)
        self._in_use: set[Wire] = set()
        """By threads."""
        self._handed_on: set[Wire] = set()
        """Those of them whose slot was given to another."""
        self._on_loop: _OnLoop | None = None

    @asynccontextmanager
    async def take(self, *, is_async: bool) -> AsyncIterator[Wire]:
        """A connection, until the end of the block."""
        if is_async:
            async with self._loop_side().take(self) as wire:
                yield wire
            return
        self._free.acquire()
        own_place = True
        try:
            wire = self._from(self._idle) or await self.connect(is_async=False)
            with self._lock:
                self._in_use.add(wire)
            try:
                yield wire
            finally:
                own_place = self._came_back(wire)
                if own_place:
                    self.put_back(self._idle, wire)
                else:
                    _close(wire)
        finally:
            if own_place:
                self._free.release()

    async def break_off(self, wire: Wire, backend: Backend) -> bool:
        """Terminate a connection whose thread does not come back, and free its slot.

        By the server, which also ends what runs there: the connection itself belongs to its thread,
        and nobody else may touch it. Returns whether its transaction was still the one it began
        with, or it has come back meanwhile. After an error this may be tried again.
        """
        with self._lock:
            if wire not in self._in_use:
                return True
            first = wire not in self._handed_on
            self._handed_on.add(wire)
        if first:
            self._free.release()
        # With a connection of its own: the others may be busy for a long time.
        other = await self.connect(is_async=False)
        try:
            return await _end(other, backend)
        finally:
            _close(other)

    async def connect(self, *, is_async: bool) -> Wire:
        """A new connection."""
        options: dict[str, Any] = {
            "autocommit": True,  # a transaction is a block that says so
            "connect_timeout": CONNECT_SECONDS,
            "fallback_application_name": self._name,
        }
        with translated():
            wire: Wire
            if is_async:
                wire = AsyncWire(await LentAsyncConnection.connect(self._dsn, **options))
            else:
                wire = SyncWire(LentConnection.connect(self._dsn, **options))
        await wire.fetch(sql.SQL(f"set lock_timeout = {LOCK_TIMEOUT}"))
        return wire

    def forget_idle(self) -> None:
        """Close idle connections: they are from before the database went away."""
        side = self._on_loop
        for idle in (self._idle, [] if side is None else side.idle):
            while (wire := self._from(idle)) is not None:
                _close(wire)

    def put_back(self, idle: list[Wire], wire: Wire) -> None:
        """Keep a connection for the next caller, if it is still clean."""
        if is_broken(wire) or is_in_transaction(wire):
            _close(wire)
        else:
            with self._lock:
                idle.append(wire)

    def _came_back(self, wire: Wire) -> bool:
        """Mark it as returned; False: its slot was given to another."""
        with self._lock:
            self._in_use.discard(wire)
            own_place = wire not in self._handed_on
            self._handed_on.discard(wire)
            return own_place

    def _from(self, idle: list[Wire]) -> Wire | None:
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
        self.idle: list[Wire] = []
        self._free = asyncio.Semaphore(most)

    @asynccontextmanager
    async def take(self, connections: Connections) -> AsyncIterator[Wire]:
        async with self._free:
            wire = self.idle.pop() if self.idle else await connections.connect(is_async=True)
            try:
                yield wire
            finally:
                connections.put_back(self.idle, wire)


async def backend_of(wire: Wire) -> Backend:
    """The server process of a connection, within its transaction."""
    [row] = await wire.fetch(_BACKEND)
    return Backend(*row)


async def _end(wire: Wire, backend: Backend) -> bool:
    """End a process of the server; gives whether its transaction was still that one."""
    parameters = (END_BACKEND_MILLISECONDS, backend.transaction, backend.pid, backend.started)
    found = await wire.fetch(_END, parameters)
    if not found:
        return True  # it has already ended, and its transaction with it
    [(ended, same)] = found
    if not ended and await wire.fetch(_END, parameters):
        raise StoreDownError(f"PostgreSQL: session {backend.pid} could not be terminated")
    return bool(same)


def _close(wire: Wire) -> None:
    # At once, without telling the server: also works if the event loop has ended.
    wire.connection.pgconn.finish()
