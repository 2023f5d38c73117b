"""Writing to the outbox: outbound records, in the transaction of the work that sends them.

    outbox = Outbox("shop")
    outbox.insert(connection, [Outbound(write), Outbound(write, id="order-17")])

It is called once per lot, as the last step before the commit. Everybody takes ids and then locks,
both in sorted order, so two lots never deadlock.
"""

from __future__ import annotations

import json
import uuid
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from redrive.errors import DuplicateOutboxId
from redrive.ledger.names import BUCKETS, DEFAULT_SCHEMA, SHARDS, channel, lock_class
from redrive.record import Headers, Write

ID_HEADER: Final = "id"
"""The header that holds the id of a published record, as Debezium writes it."""

_Statement = tuple[sql.Composed, Sequence[Any]]
_ID_CONSTRAINTS: Final = ("outbox_id", "sent_id")
_COLUMNS: Final = {
    "shard": "smallint",
    "id": "text",
    "aggregatetype": "text",
    "aggregateid": "text",
    "topic": "text",
    "key": "bytea",
    "partition": "integer",
    "payload": "bytea",
    "headers": "text",
}


class Outbound(NamedTuple):
    """One record to publish; if the sender gives no id, it gets a random one."""

    write: Write
    id: str | None = None
    remembered: bool = False
    """Its id was already recorded, by `remembering`."""


class Outbox:
    """The outbox of one app."""

    def __init__(self, app: str, schema: str = DEFAULT_SCHEMA) -> None:
        self._app = app
        self._lock_class = lock_class("aggregate", schema)
        self._channel = channel(schema)
        self._tables = {
            name: sql.Identifier(schema, name) for name in ("outbox", "sent", "header_column")
        }
        self._header_columns: list[tuple[str, str]] | None = None

    def insert(self, connection: psycopg.Connection[Any], sends: Sequence[Outbound]) -> None:
        """Write them, at the end of a transaction; DuplicateOutboxId if an id was sent before.

        After that error the transaction, or the savepoint around this call, must be rolled back.
        """
        if not sends:
            return
        with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            if self._header_columns is None:
                self._header_columns = cursor.execute(self._ask_header_columns()).fetchall()
            try:
                for query, parameters in self._statements(sends):
                    cursor.execute(query, parameters)
            except psycopg.errors.UniqueViolation as error:
                raise _explained(error) from error

    async def insert_async(
        self, connection: psycopg.AsyncConnection[Any], sends: Sequence[Outbound]
    ) -> None:
        """The same on an asynchronous connection."""
        if not sends:
            return
        async with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            if self._header_columns is None:
                asked = await cursor.execute(self._ask_header_columns())
                self._header_columns = await asked.fetchall()
            try:
                for query, parameters in self._statements(sends):
                    await cursor.execute(query, parameters)
            except psycopg.errors.UniqueViolation as error:
                raise _explained(error) from error

    def remembering(self, chosen: Sequence[str]) -> _Statement:
        """Records ids that a sender chose; returns no row for those that were sent before."""
        note = "insert into {} (app, id) select %s, unnest(%s::text[]) on conflict do nothing"
        query = sql.SQL(note + " returning id").format(self._tables["sent"])
        return query, (self._app, sorted(chosen))

    def _ask_header_columns(self) -> sql.Composed:
        return sql.SQL("select header, name from {} order by name").format(
            self._tables["header_column"]
        )

    def _statements(self, sends: Sequence[Outbound]) -> Iterator[_Statement]:
        chosen = sorted(one.id for one in sends if one.id is not None and not one.remembered)
        if chosen:
            insert = "insert into {} (app, id) select %s, unnest(%s::text[])"
            yield sql.SQL(insert).format(self._tables["sent"]), (self._app, chosen)
        numbers = [aggregate_number(one.write) for one in sends]
        buckets = sorted({number % BUCKETS for number in numbers if number is not None})
        if buckets:
            lock = "select pg_advisory_xact_lock(%s, bucket) from unnest(%s::integer[]) bucket"
            yield sql.SQL(lock).format(), (self._lock_class, buckets)
        yield self._insertion(sends, numbers)
        yield sql.SQL("select pg_notify(%s, '')").format(), (self._channel,)

    def _insertion(self, sends: Sequence[Outbound], numbers: Sequence[int | None]) -> _Statement:
        headers = self._header_columns or []
        names = [*_COLUMNS, *(name for _, name in headers)]
        types = [*_COLUMNS.values(), *("text" for _ in headers)]
        query = sql.SQL(
            "insert into {table} (app, {names})"
            " select %s, {values} from unnest({arrays}) as row({names})"
        ).format(
            table=self._tables["outbox"],
            names=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(
                sql.SQL("headers::json") if name == "headers" else sql.Identifier(name)
                for name in names
            ),
            arrays=sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in types),
        )
        wanted = [header for header, _ in headers]
        rows = [_row(one, number, wanted) for one, number in zip(sends, numbers, strict=True)]
        return query, (self._app, *map(list, zip(*rows, strict=True)))


def aggregate_number(write: Write) -> int | None:
    """The hash for lock and shard of an aggregate; a record without a key has no aggregate."""
    if write.key is None:
        return None
    return zlib.crc32(write.key, zlib.crc32(write.topic.encode() + b"\0"))


def _row(send: Outbound, number: int | None, header_columns: Sequence[str]) -> tuple[Any, ...]:
    write, chosen, _ = send
    id_ = uuid.uuid4() if chosen is None else chosen
    headers = tuple(pair for pair in write.headers if pair[0] != ID_HEADER)
    return (
        # Not the lock's bits: each shard must contain all buckets.
        (hash(id_) if number is None else number // BUCKETS) % SHARDS,
        str(id_),
        write.topic,
        None if write.key is None else _text(write.key),
        write.topic,
        write.key,
        write.partition,
        write.value,
        _packed(headers) if headers else None,
        *(_last(headers, name) for name in header_columns),
    )


def _packed(headers: Headers) -> str:
    return json.dumps(
        [[name, None if value is None else b64encode(value).decode()] for name, value in headers]
    )


def _last(headers: Headers, name: str) -> str | None:
    values = [value for header, value in headers if header == name]
    return None if not values or values[-1] is None else _text(values[-1])


def _text(given: bytes) -> str:
    """Readable, for text columns: they accept neither arbitrary bytes nor NULs."""
    return given.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _explained(error: psycopg.errors.UniqueViolation) -> Exception:
    if error.diag.constraint_name not in _ID_CONSTRAINTS:
        return error
    found = (error.diag.message_detail or "").partition(")=(")[2].rpartition(")")[0]
    return DuplicateOutboxId(found.partition(", ")[2])
