"""MemoryStore: inbox and outbox in memory, with the same promises as those in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from redrive.delivery.store import Claim, Found, InboxId, Marks, StoreDownError
from redrive.errors import ContextError, PublishError
from redrive.record import IdentifiedWrite, Write

if TYPE_CHECKING:
    from redrive.ports import Clock


class Row(NamedTuple):
    """What is known of one id."""

    found: Found
    at: int


class MemoryStore:
    """The inbox and outbox of one app. Units of work run one after the other.

    `publish` stands for the relay: it gets what was committed to the outbox. `db` is what handlers
    get as `ctx.db`; if it has `transaction()`, like psycopg's connections, failed calls are rolled
    back in it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        db: object | None = None,
        publish: Callable[[list[Write]], None] = lambda _: None,
    ) -> None:
        self.clock = clock
        self.db = db
        self.rows: dict[InboxId, Row] = {}
        self.sent: set[str] = set()
        self._publish = publish
        self._outbox: list[Write] = []
        self._numbers = 0

    @asynccontextmanager
    async def session(self, *, is_async: bool) -> AsyncIterator[MemorySession]:
        """A transaction, rolled back unless it was committed."""
        del is_async  # nothing in memory waits
        async with AsyncExitStack() as whole:
            await _enter(whole, self.db)
            session = MemorySession(self, whole)
            yield session
            if not session.committed:
                raise _NotCommittedError

    async def expire(self, *, older_than: int, is_async: bool) -> bool:
        """Forget what is older."""
        del is_async
        oldest = self.clock.now() - older_than
        self.rows = {name: row for name, row in self.rows.items() if row.at >= oldest}
        return False

    async def known(
        self, ids: Collection[InboxId], *, is_async: bool = False
    ) -> dict[InboxId, Found]:
        """What is known of these ids."""
        del is_async
        return {name: self.rows[name].found for name in ids if name in self.rows}

    async def forget_done(self, sources: Mapping[InboxId, str], *, is_async: bool = False) -> int:
        """Forget these ids where they are done, by the record at that place."""
        found = await self.known(sources, is_async=is_async)
        gone = [
            name
            for name, (state, _, _, source) in found.items()
            if state == "done" and source == sources[name]
        ]
        for name in gone:
            del self.rows[name]
        return len(gone)

    def close(self) -> None:
        """Nothing has to be closed."""

    def carry_out(
        self, rows: dict[InboxId, Row | None], sent: set[str], outbox: Sequence[Write]
    ) -> None:
        """Apply a transaction's changes."""
        for name, row in rows.items():
            if row is None:
                self.rows.pop(name, None)
            else:
                self.rows[name] = row
        self.sent |= sent
        self._outbox += [self._with_id(write) for write in outbox]
        self.relay()

    def relay(self) -> None:
        """Publish the outbox; what a topic refuses stays there."""
        outgoing, self._outbox = self._outbox, []
        if not outgoing:
            return
        try:
            self._publish(outgoing)
        except PublishError as error:
            kept = {id(write) for write in error.refused or outgoing}
            self._outbox = [write for write in outgoing if id(write) in kept]

    def _with_id(self, write: Write) -> Write:
        self._numbers += 1
        chosen = write.id if isinstance(write, IdentifiedWrite) else str(UUID(int=self._numbers))
        return Write(*write)._replace(headers=(*write.headers, ("id", chosen.encode())))


class MemorySession:
    """One transaction."""

    def __init__(self, store: MemoryStore, whole: AsyncExitStack) -> None:
        self.committed = False
        self.broken = False
        self._store = store
        self._whole = whole
        self._rows: dict[InboxId, Row | None] = {}
        self._sent: set[str] = set()
        self._outbox: list[Write] = []
        self._call = AsyncExitStack()

    @property
    def connection(self) -> Any:
        """What the test passed in."""
        if self._store.db is None:
            raise ContextError(
                "ctx.db: this simulation has no database; pass Simulation(app, db=...)"
            )
        return self._store.db

    async def begin(self) -> None:
        """A call begins."""
        self._call = AsyncExitStack()
        await _enter(self._call, self._store.db)

    async def keep(self, sends: Sequence[Write]) -> bool:
        """Keep the call's work, unless it sends an id that was sent before."""
        chosen = [write.id for write in sends if isinstance(write, IdentifiedWrite)]
        taken = self._store.sent | self._sent
        if len(set(chosen)) < len(chosen) or taken & set(chosen):
            await self.undo(ContextError("sent before"))
            return False
        self._sent.update(chosen)
        await self._call.aclose()
        return True

    async def undo(self, error: BaseException) -> None:
        """Undo the call's work."""
        await self._call.__aexit__(type(error), error, None)

    async def claim(self, claims: Sequence[Claim]) -> dict[InboxId, Found]:
        """Record these ids as done; returns what was known of those that are not new."""
        found = {
            claim.id: self._store.rows[claim.id].found
            for claim in claims
            if claim.id in self._store.rows
        }
        for claim in claims:
            if claim.id not in found:
                self._put(claim.id, Found("done", *claim[1:]))
        return found

    async def watch(self) -> None:
        """Prepare to be aborted."""

    async def break_off(self) -> None:
        """Undo it, and allow nothing more in it."""
        self.broken = True

    async def mark(self, marks: Marks) -> None:
        """Record the outcome of claimed ids that are not simply done."""
        for claim in marks.done:
            self._put(claim.id, Found("done", *claim[1:]))
        for name, attempt in marks.parked:
            _, _, fingerprint, source = self._seen(name)
            self._put(name, Found("parked", attempt, fingerprint, source))
        for name in marks.forgotten:
            self._rows[name] = None
        for name in marks.no_longer_parked:
            row = self._store.rows.get(name)
            if row is not None and row.found.state == "parked":
                self._rows[name] = None

    async def send(self, writes: Sequence[Write]) -> None:
        """Put outbound records into the outbox."""
        self._outbox += writes

    async def commit(self) -> None:
        """Make all of it durable."""
        if self.broken:
            raise StoreDownError("the transaction was aborted")
        await self._whole.aclose()
        self.committed = True
        self._store.carry_out(self._rows, self._sent, self._outbox)

    def _put(self, name: InboxId, found: Found) -> None:
        self._rows[name] = Row(found, self._store.clock.now())

    def _seen(self, name: InboxId) -> Found:
        row = self._rows.get(name) or self._store.rows[name]
        return row.found


class _NotCommittedError(Exception):
    """Rolls the test's own transaction back."""


async def _enter(stack: AsyncExitStack, db: object | None) -> None:
    transaction = getattr(db, "transaction", None)
    if transaction is None:
        return
    block = transaction()
    if hasattr(type(block), "__aenter__"):
        await stack.enter_async_context(block)
    else:
        stack.enter_context(block)
