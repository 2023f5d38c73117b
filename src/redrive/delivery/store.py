"""Stores: where a unit of work keeps what it did, in one transaction with what handlers do.

Two implementations, in PostgreSQL (`ledger/postgres_store.py`) and in memory
(`testing/memory_store.py`), and one contract suite for both. Methods are coroutines, so that a unit
of work is written once: those of a session that is not async never wait, and need no event loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from redrive.errors import RedriveError
from redrive.processing.calls.savepoints import Savepoint
from redrive.record import Write

State = Literal["done", "parked"]


class StoreDownError(RedriveError):
    """The database cannot be asked: whatever was to be done is undone, and tried again later."""


class StoreBusyError(RedriveError):
    """A rival was in the way too long: all is undone, and tried again record by record."""


class StoreRefusedError(RedriveError):
    """The database does not take what a record has to write, now or later: all is undone."""


class StoreNotAllowedError(RedriveError):
    """The database refuses this role a privilege: all is undone, and waiting does not help."""


class TransactionEndedError(RedriveError):
    """A handler has ended the transaction that its record's outcome should have been part of."""


class InboxId(NamedTuple):
    """What a record is known by: its id, among those of its source topic or `id_scope=`."""

    scope: str
    id: str

    def __str__(self) -> str:
        return f"{self.id} of {self.scope}"


class Claim(NamedTuple):
    """A record's id, about to be handled."""

    id: InboxId
    attempt: int
    fingerprint: bytes | None
    """Of the payload; None where there is none."""
    source: str


class Found(NamedTuple):
    """What was known of an id before it was claimed."""

    state: State
    attempt: int
    fingerprint: bytes | None
    source: str


@dataclass
class Marks:
    """How claimed ids differ from done at the end of a unit of work."""

    done: list[Claim] = field(default_factory=list)
    """Those that were parked before."""
    parked: list[tuple[InboxId, int]] = field(default_factory=list)
    """With the attempt that comes next."""
    forgotten: list[InboxId] = field(default_factory=list)
    """Those that must be as if nobody had seen them."""
    no_longer_parked: list[InboxId] = field(default_factory=list)
    """Ids that were not claimed; where they are parked, they are forgotten."""


class Session(Savepoint, Protocol):
    """One transaction. As a guard, it makes single calls of handlers undoable."""

    @property
    def connection(self) -> Any:
        """What handlers have as `ctx.db`."""
        ...

    async def claim(self, claims: Sequence[Claim]) -> dict[InboxId, Found]:
        """Note these ids, in order, as done; returns what was known of those that are not new.

        Rivals wait until this transaction has ended, and this one waits for theirs. What was known
        is left as it is, and is nobody else's until the end.
        """
        ...

    async def watch(self) -> None:
        """Be ready to be broken off: what is called next may not come back."""
        ...

    async def break_off(self) -> None:
        """End the transaction, which is watched, from another thread than its own, and undo it.

        Its ids are free when this returns, and its own thread cannot do anything in it any more.
        """
        ...

    async def mark(self, marks: Marks) -> None:
        """Say what became of the claimed ids that are not simply done."""
        ...

    async def send(self, writes: Sequence[Write]) -> None:
        """Put outbound records into the outbox."""
        ...

    async def commit(self) -> None:
        """Make all of it durable."""
        ...


class KnownIds(Protocol):
    """What is known of ids, for operators: outside units of work, and without claiming anything."""

    async def known(
        self, ids: Collection[InboxId], *, is_async: bool = False
    ) -> dict[InboxId, Found]:
        """What is known of these ids; others may change it at any time."""
        ...

    async def forget_done(self, sources: Mapping[InboxId, str], *, is_async: bool = False) -> int:
        """Forget these ids where they are done, by the record at that place; returns how many.

        An id that waits for another attempt, or was done by another record, stays as it is.
        """
        ...


class Store(KnownIds, Protocol):
    """Makes sessions."""

    def session(self, *, is_async: bool) -> AbstractAsyncContextManager[Session]:
        """A transaction, which is rolled back unless it was committed."""
        ...

    async def expire(self, *, older_than: int, is_async: bool) -> bool:
        """Forget some of what is older, in milliseconds; True: there may be more."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...
