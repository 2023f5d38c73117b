"""Which relay publishes what: shards, owned by the session of a connection.

The session is the lease. Its advisory locks say which shards it owns, and the rows it takes are
deleted in its transaction: a relay that loses the session loses both at the same moment, and can no
longer commit anything. A process that dies loses it at once. One that is frozen, or whose machine
is gone, loses it after the lease time, because the server terminates sessions that are silent for
that long.
"""

from __future__ import annotations

import random
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from redrive.ledger.address import checked
from redrive.ledger.names import SHARDS, channel, lock_class

_MEMBERS: Final = """
    select count(*) from pg_locks
    where locktype = 'advisory' and granted and objsubid = 2
    and database = (select oid from pg_database where datname = current_database())
    and classid = %s::bigint::oid and objid = 0
"""
_UNSIGNED: Final = 0xFFFF_FFFF


class Lease:
    """The shards of one session: its fair share."""

    def __init__(self, connection: psycopg.Connection[Any], app: str, schema: str) -> None:
        self.shards: list[int] = []
        self._cursor = connection.cursor(row_factory=tuple_row)
        self._member_class = lock_class("relay", schema, app)
        self._shard_class = lock_class("shard", schema, app)
        self._cursor.execute("select pg_advisory_lock_shared(%s, 0)", (self._member_class,))

    def balance(self) -> None:
        """Take free shards and release excess ones; only between transactions."""
        share = -(-SHARDS // self._members())
        if len(self.shards) > share:
            self._release(self.shards[share:])
        elif len(self.shards) < share:
            self._acquire(share - len(self.shards))

    def _members(self) -> int:
        row = self._cursor.execute(_MEMBERS, (self._member_class & _UNSIGNED,)).fetchone()
        return max(1, row[0] if row else 1)

    def _release(self, shards: list[int]) -> None:
        self._cursor.execute(
            "select pg_advisory_unlock(%s, shard) from unnest(%s::integer[]) shard",
            (self._shard_class, shards),
        )
        self.shards = [shard for shard in self.shards if shard not in shards]

    def _acquire(self, most: int) -> None:
        others = [shard for shard in range(SHARDS) if shard not in self.shards]
        random.shuffle(others)  # so that relays that start together do not ask for the same ones
        self._cursor.execute(
            "select shard from unnest(%s::integer[]) shard"
            " where pg_try_advisory_lock(%s, shard) limit %s",
            (others, self._shard_class, most),
        )
        self.shards += [shard for (shard,) in self._cursor.fetchall()]


def open_session(
    dsn: str, app: str, schema: str, seconds: float
) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection whose session ends after that long without a sign of life."""
    connection = psycopg.connect(
        checked(dsn), autocommit=True, connect_timeout=10, application_name=f"redrive relay {app}"
    )
    silence = int(seconds * 1000)
    settings = {
        "idle_session_timeout": silence,
        "idle_in_transaction_session_timeout": silence,
        # A stopped process may leave the server in the middle of an answer.
        "tcp_user_timeout": silence,
        "tcp_keepalives_idle": max(1, int(seconds / 2)),
        "tcp_keepalives_interval": max(1, int(seconds / 6)),
        "tcp_keepalives_count": 3,
        "lock_timeout": silence,
        # A deletion that is lost in a server crash causes a repetition, nothing worse.
        "synchronous_commit": "off",
        # Statistics of a table that is filled and emptied all the time say nothing.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
    }
    with connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute("select set_config(%s, %s, false)", (name, str(value)))
        cursor.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(channel(schema))))
    return connection
