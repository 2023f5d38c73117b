"""Database: the inbox and outbox of all processes, with what can go wrong on the way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from typing import Any

from redrive.delivery.store import Claim, Found, InboxId, Marks, StoreBusyError, StoreDownError
from redrive.record import Write
from redrive.testing.memory_store import MemorySession, MemoryStore
from simulation.scheduler import Process, Waiter, World

LOCK_TIMEOUT = 5.0
"""Seconds that a claim waits for a rival."""


class Database:
    """What is durable, and who holds which ids."""

    def __init__(self, world: World, cluster: Any) -> None:
        self.world = world
        self.cluster = cluster
        self.down_until = -inf
        self.lose_answers = 0.0
        self.held: dict[InboxId, SimSession] = {}
        self.waiting: list[Waiter] = []
        self.store = MemoryStore(cluster.clock, db=object(), publish=self._relay)

    def connect(self) -> SimStore:
        return SimStore(self)

    def _relay(self, writes: list[Write]) -> None:
        plain = [write._replace(partition=write.partition or 0) for write in map(_bare, writes)]
        self.cluster.append(plain)


class SimStore:
    """A process's way to the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def session(self, *, is_async: bool) -> AsyncIterator[SimSession]:
        del is_async
        self._database.world.point()
        session = SimSession(self._database)
        session.check()
        try:
            yield session
        finally:
            session.let_go()

    async def expire(self, *, older_than: int, is_async: bool) -> bool:
        return await self._database.store.expire(older_than=older_than, is_async=is_async)

    async def known(self, ids: Any, *, is_async: bool = False) -> dict[InboxId, Found]:
        return await self._database.store.known(ids, is_async=is_async)

    async def forget_done(self, sources: Any, *, is_async: bool = False) -> int:
        SimSession(self._database).check()
        return await self._database.store.forget_done(sources, is_async=is_async)

    def close(self) -> None: ...


class SimSession(MemorySession):
    """One transaction: its ids are nobody else's until it ends, as rows of PostgreSQL are."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.store, AsyncExitStack())
        self._database = database
        self._process: Process = database.world.current.process
        self._rows_of_calls: list[bytes] = []
        self._rows_kept: list[bytes] = []
        self._over = False

    @property
    def connection(self) -> SimSession:
        return self

    def insert(self, row: bytes) -> None:
        """What a handler does through `ctx.db`."""
        self.check()
        self._rows_of_calls.append(row)

    def check(self) -> None:
        """Ask something of the database, within the transaction."""
        self._ask()
        if self.broken or self._over:
            raise StoreDownError("the transaction was ended")

    def _ask(self) -> None:
        database, world = self._database, self._database.world
        world.point()
        world.sleep(database.cluster.travel() / 2)
        if database.down_until > world.now:
            raise StoreDownError("the database is away, simulated")

    async def begin(self) -> None:
        self.check()
        self._rows_of_calls = []

    async def keep(self, sends: Sequence[Write]) -> bool:
        self.check()
        self._rows_kept += self._rows_of_calls
        self._rows_of_calls = []
        return True

    async def undo(self, error: BaseException) -> None:
        del error
        self.check()
        self._rows_of_calls = []

    async def claim(self, claims: Sequence[Claim]) -> dict[InboxId, Found]:
        database, world = self._database, self._database.world
        for claim in claims:
            self.check()
            until = world.now + LOCK_TIMEOUT
            while (holder := database.held.get(claim.id)) not in (None, self):
                if holder is not None and holder.is_dead:
                    holder.let_go()  # its connection is gone, and the database notices
                    continue
                if world.now >= until:
                    raise StoreBusyError(f"{claim.id} is somebody else's")
                database.waiting.append(world.waiter())
                world.wait(min(0.5, until - world.now))
            database.held[claim.id] = self
        return await super().claim(claims)

    @property
    def is_dead(self) -> bool:
        return self._process.dead

    async def break_off(self) -> None:
        self._ask()  # on a connection of its own: there may be nothing left to end
        self.broken = True
        self.let_go()

    async def mark(self, marks: Marks) -> None:
        self.check()
        await super().mark(marks)

    async def send(self, writes: Sequence[Write]) -> None:
        self.check()
        await super().send(writes)

    async def commit(self) -> None:
        database, world = self._database, self._database.world
        self.check()
        await super().commit()
        for row in self._rows_kept:
            database.cluster.history.inserted(row)
        known = {row.found.source for row in self._rows.values() if row is not None}
        database.cluster.history.in_inbox |= known
        self.let_go()
        if world.random.random() < database.lose_answers:
            world.faults["database commit, answer lost"] += 1
            raise StoreDownError("the connection broke, simulated")
        world.sleep(database.cluster.travel() / 2)

    def let_go(self) -> None:
        """End it: whoever waits for its ids goes on."""
        database = self._database
        self._over = True
        for name in [name for name, holder in database.held.items() if holder is self]:
            del database.held[name]
        waiting, database.waiting = database.waiting, []
        for task in waiting:
            database.world.wake(task)


def _bare(write: Write) -> Write:
    return Write(*write[:6])
