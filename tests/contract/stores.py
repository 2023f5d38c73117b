"""Both stores behind one face."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from redrive.coroutines import run_sync
from redrive.delivery.store import Claim, Found, InboxId, Marks, Session, Store
from redrive.ledger.migrating import migrate
from redrive.ledger.postgres_store import PostgresStore
from redrive.record import Write
from redrive.testing.memory_store import MemoryStore
from redrive.testing.virtual_clock import VirtualClock


class InMemory:
    """The store in memory, and what a relay would have published."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.published: list[Write] = []
        self.store: Store = MemoryStore(self.clock, publish=self.published.extend)

    def known(self) -> dict[InboxId, Found]:
        return {name: row.found for name, row in self.store.rows.items()}  # type: ignore[attr-defined]  # -- the one in memory

    def outbox(self) -> list[bytes | None]:
        return [write.value for write in self.published]

    def grow_old(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    def close(self) -> None:
        pass


class InPostgres:
    """The store in PostgreSQL."""

    def __init__(self, dsn: str) -> None:
        self._db = psycopg.connect(dsn, autocommit=True)
        migrate(self._db)
        self.store: Store = PostgresStore(dsn, "shop", connections=4)

    def known(self) -> dict[InboxId, Found]:
        rows = self._db.execute(
            "select scope, id, state, attempt, fingerprint, source from redrive.inbox"
            " where app = 'shop'"
        )
        return {InboxId(scope, name): Found(*rest) for scope, name, *rest in rows}

    def outbox(self) -> list[bytes | None]:
        return [row[0] for row in self._db.execute("select payload from redrive.outbox")]

    def grow_old(self, milliseconds: int) -> None:
        for update in ("update redrive.inbox", "update redrive.sent"):
            self._db.execute(
                f"{update} set at = at - %s * interval '1 millisecond'", [milliseconds]
            )

    def close(self) -> None:
        self.store.close()
        self._db.close()


class Stepped:
    """A session, stepped without event loop."""

    def __init__(self, store: Store) -> None:
        self._context = store.session(is_async=False)
        self.session: Session = run_sync(self._context.__aenter__())

    def claim(self, *claims: Claim) -> dict[InboxId, Found]:
        return run_sync(self.session.claim(claims))

    def mark(self, **marks: Any) -> None:
        run_sync(self.session.mark(Marks(**marks)))

    def send(self, *writes: Write) -> None:
        run_sync(self.session.send(writes))

    def begin(self) -> None:
        run_sync(self.session.begin())

    def keep(self, *sends: Write) -> bool:
        return run_sync(self.session.keep(sends))

    def undo(self, error: BaseException) -> None:
        run_sync(self.session.undo(error))

    def commit(self) -> None:
        run_sync(self.session.commit())
        run_sync(self._context.__aexit__(None, None, None))

    def roll_back(self) -> None:
        error = RuntimeError("rolled back by the test")
        assert not run_sync(self._context.__aexit__(type(error), error, None))


@contextmanager
def committed(store: Store) -> Iterator[Stepped]:
    session = Stepped(store)
    yield session
    session.commit()
