"""The relay: publishes the outbox of an app, in order per aggregate, and deletes what it published.

One thread, one connection, one transaction per batch: one statement deletes and returns the rows,
they are handed to Kafka, and the transaction is committed when all of them are durable. Anything
that goes wrong in between rolls the deletion back, and the batch is published again, with the same
ids.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from redrive.config import Settings
from redrive.errors import LedgerError
from redrive.ledger import privileges
from redrive.ledger.held_back import HeldBack, Taken
from redrive.ledger.lease import Lease, open_session
from redrive.ledger.migrating import require
from redrive.ledger.outbox_reader import OutboxReader
from redrive.ledger.publishing import KafkaAwayError, Publishing, Refusal
from redrive.ledger.relay_figures import RelayFigures
from redrive.tuning import (
    RELAY_BALANCE,
    RELAY_BATCH,
    RELAY_CHUNK,
    RELAY_FIRST_PAUSE,
    RELAY_LEASE_SECONDS,
    RELAY_LONGEST_PAUSE,
    RELAY_NOTICE_SIGNALS,
    RELAY_PATIENCE,
    RELAY_POLL,
)

log: Final = logging.getLogger("redrive.relay")

Connection = psycopg.Connection[tuple[Any, ...]]


class Relay:
    """Publishes the outbox of one app, until it is stopped."""

    def __init__(
        self,
        app: str,
        settings: Settings,
        *,
        stopping: Callable[[], bool],
        lease_seconds: float = RELAY_LEASE_SECONDS,
        batch: int = RELAY_BATCH,
        poll: float = RELAY_POLL,
    ) -> None:
        self.app = app
        self.settings = settings
        self.figures = RelayFigures()
        self.held_back = HeldBack(time.monotonic)
        self._stopping = stopping
        self._lease_seconds = lease_seconds
        self._batch = batch
        self._poll = min(poll, lease_seconds / 4)  # the session must not seem dead
        self._publishing = Publishing(settings, min(RELAY_PATIENCE, lease_seconds / 2))
        self._pause = RELAY_FIRST_PAUSE
        self._handed_over = False

    def run(self, *, until_empty: bool = False) -> None:
        """Publish until stopped; or until nothing is left that can be published."""
        while not self._stopping():
            try:
                with self._session() as connection:
                    self._work(connection, until_empty=until_empty)
                    return
            except psycopg.errors.InsufficientPrivilege as error:  # waiting does not help
                raise self._not_allowed(error) from error
            except psycopg.Error as error:  # whatever it is, the rows are safe in their table
                self._trouble("database", _last_line(error))
            except psycopg.Rollback:  # only reached if that failed
                self._trouble(
                    "database",
                    "the session was terminated; the rows that it had taken are not lost",
                )
            except KafkaAwayError as error:
                self._trouble("kafka", str(error))

    def _not_allowed(self, error: psycopg.Error) -> LedgerError:
        """What this role lacks and the GRANTs for it; if nothing, the database's own words."""
        schema = self.settings.ledger_schema
        try:
            with psycopg.connect(self.settings.dsn(), connect_timeout=10) as connection:
                grants = privileges.missing(connection, schema, privileges.RELAY)
        except psycopg.Error:
            grants = ""
        return LedgerError(privileges.sentence(schema, grants) if grants else _last_line(error))

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """The lease, and what depends on it."""
        if self.figures.trouble.startswith("kafka"):
            self._publishing.check()
        schema = self.settings.ledger_schema
        connection = open_session(self.settings.dsn(), self.app, schema, self._lease_seconds)
        try:
            require(connection, schema)
            yield connection
        finally:
            self._publishing.let_go()
            self.figures.abandoned += self._handed_over
            self._handed_over = False
            self.figures.shards = 0
            connection.close()

    def _work(self, connection: Connection, *, until_empty: bool) -> None:
        lease = Lease(connection, self.app, self.settings.ledger_schema)
        outbox = OutboxReader(connection, self.app, self.settings.ledger_schema)
        balanced = -RELAY_BALANCE
        while not self._stopping():
            now = self.figures.alive = time.monotonic()
            if now - balanced >= RELAY_BALANCE:
                lease.balance()
                self.figures.shards = len(lease.shards)
                balanced = now
            found = self._publish(connection, outbox, lease.shards)
            self._is_well()
            if not found:
                if until_empty and outbox.is_empty(self.held_back.now()):
                    return
                self._wait_for_word(connection)

    def _wait_for_word(self, connection: Connection) -> None:
        """Wait until a writer has committed something, or it is time to look."""
        end = time.monotonic() + self._poll
        while not self._stopping() and (left := end - time.monotonic()) > 0:
            if [*connection.notifies(timeout=min(left, RELAY_NOTICE_SIGNALS), stop_after=1)]:
                break
        for _ in connection.notifies(timeout=0):
            pass

    def _publish(self, connection: Connection, outbox: OutboxReader, shards: list[int]) -> bool:
        """Run one transaction; returns whether there was anything to do."""
        batch: list[Taken] = []
        refused: list[Refusal] = []
        late: list[Refusal] = []

        def ping() -> None:
            connection.execute("select 1")
            self.figures.alive = time.monotonic()

        def fetch() -> list[Taken]:
            most = min(RELAY_CHUNK, self._batch - len(batch))
            taken = outbox.fetch(shards, most, self.held_back.now())
            refused.extend(self._publishing.refusals(taken))
            if refused:
                raise psycopg.Rollback
            self._handed_over = bool(taken) or self._handed_over
            self._publishing.hand_over(taken, ping)
            batch.extend(taken)
            return taken

        with connection.transaction():
            taken = fetch()
            while len(taken) == RELAY_CHUNK and len(batch) < self._batch and not refused:
                taken = []
                with connection.transaction():  # a savepoint: earlier rows are in flight
                    taken = fetch()
            late += self._publishing.settle(ping, self._stopping)
            if late:
                raise psycopg.Rollback
        self._handed_over = False
        self._hold([*refused, *late])
        self.figures.abandoned += bool(late)
        if batch and not late:
            self._note(batch)
        return bool(batch or refused)

    def _note(self, batch: list[Taken]) -> None:
        self.held_back.published(batch)
        self.figures.batches += 1
        self.figures.published.update(Counter(one.write.topic for one in batch))

    def _hold(self, refused: list[Refusal]) -> None:
        for taken, reason, whole_topic in refused:
            if whole_topic:
                is_news = self.held_back.hold_topic(taken.write.topic, reason)
            else:
                is_news = self.held_back.hold(taken, reason)
            self.figures.refused[taken.write.topic] += 1
            if is_news:
                log.error("%s; the row stays in the outbox and will be tried again", reason)

    def _trouble(self, kind: str, text: str) -> None:
        """Log it once, and wait a little longer each time."""
        self.figures.errors[kind] += 1
        if not self.figures.trouble.startswith(kind):
            log.warning("%s: %s; the outbox waits until it is back", kind, text)
        self.figures.trouble = f"{kind}: {text}"
        end = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, RELAY_LONGEST_PAUSE)
        while not self._stopping() and (left := end - time.monotonic()) > 0:
            self.figures.alive = time.monotonic()
            time.sleep(min(left, 0.1))

    def _is_well(self) -> None:
        if self.figures.trouble:
            log.warning("%s is back: continuing", self.figures.trouble.partition(":")[0])
            self.figures.trouble = ""
            self._pause = RELAY_FIRST_PAUSE


def _last_line(error: psycopg.Error) -> str:
    """The last line of PostgreSQL's error; the first ones may contain the address."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
