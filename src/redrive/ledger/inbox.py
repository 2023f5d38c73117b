"""The inbox: which ids were handled, and which wait for their next attempt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import starmap
from typing import Final

from psycopg import sql

from redrive.delivery.store import Claim, Found, InboxId, Marks, StoreBusyError
from redrive.ledger.connection import Connection, Query
from redrive.ledger.names import DEFAULT_SCHEMA, lock_class
from redrive.tuning import CLAIM_TRIES, EXPIRED_AT_ONCE


class Inbox:
    """The inbox of one app."""

    def __init__(
        self, app: str, schema: str = DEFAULT_SCHEMA, *, expires: Sequence[str] = ("inbox", "sent")
    ) -> None:
        self._app = app
        self._expire_lock = lock_class("expire", schema, app)
        table = {"inbox": sql.Identifier(schema, "inbox"), "sent": sql.Identifier(schema, "sent")}
        self._insert = _INSERT.format(**table)
        self._look = _LOOK.format(**table)
        self._update = _UPDATE.format(**table)
        self._delete = _DELETE.format(**table)
        self._delete_parked = _DELETE_PARKED.format(**table)
        self._known = _KNOWN.format(**table)
        self._forget_done = _FORGET_DONE.format(**table)
        # Rows in use can wait; ids that senders chose are never updated.
        skip = {"inbox": sql.SQL(" for update skip locked"), "sent": sql.SQL("")}
        self._expire = [
            _EXPIRE.format(table=table[name], skip=skip[name]) for name in sorted(expires)
        ]

    async def claim(self, connection: Connection, claims: Sequence[Claim]) -> dict[InboxId, Found]:
        """Record ids, in order, as done; returns what was known of those that are not new."""
        found: dict[InboxId, Found] = {}
        wanted = list(claims)
        for _ in range(CLAIM_TRIES):
            # Done, because most will be: what comes out otherwise is said at the end, in the same
            # transaction. Whoever has noted one of them and not ended yet is waited for.
            names, *rest = zip(*wanted, strict=True)
            columns = (*_columns(names), *map(list, rest))
            rows = await connection.fetch(self._insert, (self._app, *columns))
            if len(rows) == len(wanted):
                return found
            new = set(starmap(InboxId, rows))
            others = [claim.id for claim in wanted if claim.id not in new]
            for scope, name, *known in await connection.fetch(
                self._look, (self._app, *_columns(others))
            ):
                found[InboxId(scope, name)] = Found(*known)
            wanted = [claim for claim in wanted if claim.id not in new and claim.id not in found]
            if not wanted:
                return found
            # There a moment ago, and gone now: its owner forgot it, or it expired.
        raise StoreBusyError(f"id {wanted[0].id}: other processes keep claiming it")

    async def mark(self, connection: Connection, marks: Marks) -> None:
        """Record the outcome of claimed ids that are not simply done."""
        changes = [(*claim.id, "done", claim.attempt, claim.fingerprint) for claim in marks.done]
        changes += [(*name, "parked", attempt, None) for name, attempt in marks.parked]
        if changes:
            changes.sort(key=lambda change: change[:2])
            await connection.fetch(
                self._update, (*map(list, zip(*changes, strict=True)), self._app)
            )
        if marks.forgotten:
            await connection.fetch(self._delete, (self._app, *_columns(marks.forgotten)))
        if marks.no_longer_parked:
            parked = _columns(sorted(marks.no_longer_parked))
            await connection.fetch(self._delete_parked, (self._app, *parked))

    async def known(self, connection: Connection, ids: Collection[InboxId]) -> dict[InboxId, Found]:
        """What is known of these ids; nothing is claimed, and nobody waits."""
        if not ids:
            return {}
        rows = await connection.fetch(self._known, (self._app, *_columns(ids)))
        return {InboxId(scope, name): Found(*known) for scope, name, *known in rows}

    async def forget_done(self, connection: Connection, sources: Mapping[InboxId, str]) -> int:
        """Forget these ids where they are done, by the record at that place; returns how many."""
        if not sources:
            return 0
        wanted = (*_columns(sources), list(sources.values()))
        [(count,)] = await connection.fetch(self._forget_done, (self._app, *wanted))
        return int(count)

    async def expire(self, connection: Connection, older_than: int) -> bool:
        """Delete some ids older than that, in milliseconds; True: there may be more."""
        block = await connection.enter()
        try:
            key = (self._expire_lock, 0)
            [(alone,)] = await connection.fetch(_TRY_LOCK, key)
            counts = [0]
            if alone:
                for query in self._expire:
                    parameters = (self._app, older_than, EXPIRED_AT_ONCE)
                    [(count,)] = await connection.fetch(query, parameters)
                    counts.append(count)
        except BaseException as error:
            await connection.leave(block, error)
            raise
        await connection.leave(block)
        return max(counts) >= EXPIRED_AT_ONCE


def _columns(ids: Iterable[InboxId]) -> tuple[list[str], list[str]]:
    scopes, names = zip(*ids, strict=True)
    return list(scopes), list(names)


# Lists are sent in binary form: as text they cost psycopg more than the insert costs the database.
_TRY_LOCK: Final[Query] = sql.SQL("select pg_try_advisory_xact_lock(%s, %s)")
_INSERT: Final = sql.SQL(
    "insert into {inbox} (app, scope, id, state, attempt, fingerprint, source)"
    " select %s, scope, id, 'done', attempt, fingerprint, source"
    " from unnest(%b::text[], %b::text[], %b::integer[], %b::bytea[], %b::text[])"
    " as claim(scope, id, attempt, fingerprint, source)"
    " on conflict (app, scope, id) do nothing returning scope, id"
)
_LOOK: Final = sql.SQL(
    "select scope, id, state, attempt, fingerprint, source from {inbox}"
    " where app = %s and (scope, id) in (select * from unnest(%b::text[], %b::text[]))"
    " order by scope, id for update"
)
_UPDATE: Final = sql.SQL(
    "update {inbox} as known set state = change.state, attempt = change.attempt,"
    " fingerprint = case when change.state = 'done' then change.fingerprint"
    " else known.fingerprint end, at = now()"
    " from unnest(%b::text[], %b::text[], %b::text[], %b::integer[], %b::bytea[])"
    " as change(scope, id, state, attempt, fingerprint)"
    " where known.app = %s and known.scope = change.scope and known.id = change.id"
)
_DELETE: Final = sql.SQL(
    "delete from {inbox} where app = %s"
    " and (scope, id) in (select * from unnest(%b::text[], %b::text[]))"
)
_DELETE_PARKED: Final = sql.SQL(
    "delete from {inbox} where app = %s and state = 'parked'"
    " and (scope, id) in (select * from unnest(%b::text[], %b::text[]))"
)
_KNOWN: Final = sql.SQL(
    "select scope, id, state, attempt, fingerprint, source from {inbox}"
    " where app = %s and (scope, id) in (select * from unnest(%b::text[], %b::text[]))"
)
# Locked in the order in which units claim ids: neither waits for the other in a circle.
_FORGET_DONE: Final = sql.SQL(
    "with mine as (select app, scope, id from {inbox} where app = %s and state = 'done'"
    " and (scope, id, source) in (select * from unnest(%b::text[], %b::text[], %b::text[]))"
    " order by scope, id for update),"
    " gone as (delete from {inbox} known using mine where known.app = mine.app"
    " and known.scope = mine.scope and known.id = mine.id returning 1)"
    " select count(*) from gone"
)
_EXPIRE: Final = sql.SQL(
    "with old as (delete from {table} where ctid = any(array(select ctid from {table}"
    " where app = %s and at < now() - %s * interval '1 millisecond'"
    " order by at limit %s{skip})) returning 1) select count(*) from old"
)
