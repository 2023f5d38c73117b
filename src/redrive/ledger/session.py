"""PostgresSession: one transaction, with a savepoint for each call of a handler."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from psycopg import sql

from redrive.delivery.store import (
    Claim,
    Found,
    InboxId,
    Marks,
    StoreBusyError,
    StoreDownError,
    TransactionEndedError,
)
from redrive.errors import ContextError, DuplicateOutboxId
from redrive.ledger.connection import (
    AsyncConnection,
    Block,
    Connection,
    SyncConnection,
    has_failed,
    is_broken,
    is_in_transaction,
    translated,
    was_busy,
)
from redrive.ledger.inbox import Inbox
from redrive.ledger.outbox import Outbound, Outbox
from redrive.ledger.pool import Backend, ConnectionPool, backend_of
from redrive.record import IdentifiedWrite, Write

_SAVEPOINT: Final = sql.SQL("savepoint redrive_call")
_NEXT_SAVEPOINT: Final = sql.SQL("release savepoint redrive_call; savepoint redrive_call")
_BACK: Final = sql.SQL("rollback to savepoint redrive_call")


class PostgresSession:
    """One transaction on one connection."""

    def __init__(
        self, connection: Connection, inbox: Inbox, outbox: Outbox, pool: ConnectionPool
    ) -> None:
        self._connection = connection
        self._pool = pool
        self._backend: Backend | None = None
        """The server's side, if it was asked for."""
        self._inbox = inbox
        self._outbox = outbox
        self._whole: Block = None
        self._in_call = False
        self._guarded = False
        """Whether the call's work comes after its own savepoint."""
        self._savepoint = False
        """Whether there is a savepoint, even of an earlier call."""
        self._new: list[InboxId] = []
        """Ids that were new: they are recorded as done, although nothing is done yet."""

    # The transaction

    async def start(self) -> None:
        """Begin it."""
        self._whole = await self._connection.enter()

    async def commit(self) -> None:
        """Make all of it durable."""
        block, self._whole = self._whole, None
        await self._connection.leave(block)

    async def roll_back(self, error: BaseException) -> None:
        """Undo all of it, as far as it still exists."""
        if isinstance(error, TransactionEndedError):
            await self._mend()
        with suppress(StoreDownError):  # then the server rolls it back
            if self._whole is not None:
                await self._connection.leave(self._whole, error)

    # One call

    @property
    def connection(self) -> Any:
        """What handlers get as `ctx.db`: from here on their call needs a savepoint."""
        if self._in_call and not self._guarded and isinstance(self._connection, SyncConnection):
            self._connection.run_at_once(self._guard())
        return self._connection.raw

    async def begin(self) -> None:
        """A call begins."""
        self._in_call = True
        self._guarded = False
        if isinstance(self._connection, AsyncConnection):  # `ctx.db` cannot await it
            await self._connection.fetch(self._guard())

    async def keep(self, sends: Sequence[Write]) -> bool:
        """Keep the call's work, unless it sends an id that was sent before."""
        self._check_there()
        if has_failed(self._connection):
            await self._end_call(ContextError("a statement has failed"))
            raise ContextError(
                "a statement on ctx.db failed and the handler went on: nothing that it did after"
                " that can be committed; put `with ctx.db.transaction():` around whatever may"
                " fail"
            )
        chosen = [write.id for write in sends if isinstance(write, IdentifiedWrite)]
        if chosen and not await self._remember(chosen):
            await self._end_call(ContextError("sent before"))
            return False
        await self._end_call(None)
        return True

    async def undo(self, error: BaseException) -> None:
        """Undo the call's work; raises if the failure was not the call's fault."""
        self._check_there(error)
        if has_failed(self._connection) and was_busy(error):
            raise StoreBusyError(f"PostgreSQL: {error}") from error
        await self._end_call(error)

    async def _end_call(self, error: BaseException | None) -> None:
        self._in_call = False
        if error is not None and self._guarded:
            await self._connection.fetch(_BACK)

    def _guard(self) -> sql.SQL:
        """Begin a savepoint. This releases the previous call's: one round trip for both."""
        statement = _NEXT_SAVEPOINT if self._savepoint else _SAVEPOINT
        self._savepoint = self._guarded = True
        return statement

    async def _remember(self, chosen: Sequence[str]) -> bool:
        if not self._guarded:
            await self._connection.fetch(self._guard())
        return len(await self._connection.fetch(*self._outbox.remembering(chosen))) == len(chosen)

    def _check_there(self, error: BaseException | None = None) -> None:
        if is_broken(self._connection):
            raise StoreDownError(f"PostgreSQL: {error or 'the connection is lost'}") from error
        if not is_in_transaction(self._connection):
            raise TransactionEndedError(
                "the handler ended the transaction of ctx.db: redrive commits it with the"
                " record's outcome, and not before; remove `commit` and `rollback`"
            ) from error

    async def _mend(self) -> None:
        """Forget ids that a handler's own commit made durable: nothing is done for them yet."""
        try:
            if self._new:
                await self._inbox.mark(self._connection, Marks(forgotten=self._new))
        finally:
            # It is unknown what else the handler left behind in it.
            self._connection.raw.pgconn.finish()

    # Inbox and outbox

    async def claim(self, claims: Sequence[Claim]) -> dict[InboxId, Found]:
        """Record ids as done; returns what was known of those that are not new."""
        found = await self._inbox.claim(self._connection, claims)
        self._new = [claim.id for claim in claims if claim.id not in found]
        return found

    async def watch(self) -> None:
        """Look up the server process: the next call may never return."""
        self._backend = await backend_of(self._connection)

    async def break_off(self) -> None:
        """End the watched transaction from another thread, and undo it."""
        if self._backend is None:
            return
        if not await self._pool.break_off(self._connection, self._backend) and self._new:
            # The handler ended it, and so made the ids durable: nothing is done for them yet.
            async with self._pool.acquire(is_async=False) as other:
                await self._inbox.mark(other, Marks(forgotten=self._new))

    async def mark(self, marks: Marks) -> None:
        """Record the outcome of claimed ids that are not simply done."""
        await self._inbox.mark(self._connection, marks)

    async def send(self, writes: Sequence[Write]) -> None:
        """Put outbound records into the outbox."""
        rows = [
            Outbound(write, write.id, remembered=True)
            if isinstance(write, IdentifiedWrite)
            else Outbound(write)
            for write in writes
        ]
        try:
            with translated():
                if isinstance(self._connection, SyncConnection):
                    self._outbox.insert(self._connection.raw, rows)
                else:
                    await self._outbox.insert_async(self._connection.raw, rows)
        except DuplicateOutboxId as error:
            raise StoreBusyError(
                f"a message with the id {error.id} still waits in the outbox"
            ) from error
