"""Taking rows out of the outbox: one statement deletes and returns them; the commit makes it final.

Always from the beginning: a row with a lower number may be committed later than one with a higher
number, in another aggregate. "After the last one seen" would skip it.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from redrive.ledger.held_back import Excluded, Taken
from redrive.ledger.outbox import ID_HEADER
from redrive.record import Headers, Write
from redrive.tuning import TAKE_BYTES, TAKE_OF_A_SHARD

_new: Final = tuple.__new__
_TAKE: Final = """
    delete from {table} where ctid = any(array(
        select ctid from (
            select row.ctid, sum(size) over (order by turn, number) - size before
            from unnest(%(shards)s::smallint[]) with ordinality own(shard, turn)
            cross join lateral (
                select ctid, number, coalesce(octet_length(payload), 0)::bigint size
                from {table} row
                where app = %(app)s and row.shard = own.shard {but}
                order by number limit %(most_of_a_shard)s
            ) row limit %(most)s
        ) row where before < %(most_bytes)s
    ))
    returning number, topic, key, payload, partition, id, headers::text
"""
_BUT: Final = {
    "topics": "and topic <> all(%(topics)s::text[])",
    "rows": "and number <> all(%(rows)s::bigint[])",
    "keys": """and not exists (
        select from unnest(%(key_topics)s::text[], %(keys)s::bytea[]) held(topic, key)
        where held.topic = row.topic and held.key = row.key
    )""",
}


class OutboxReader:
    """The rows of one app that are to be published."""

    def __init__(self, connection: psycopg.Connection[Any], app: str, schema: str) -> None:
        self._cursor = connection.cursor(row_factory=tuple_row, binary=True)
        self._app = app
        self._table = sql.Identifier(schema, "outbox")

    def fetch(self, shards: Sequence[int], most: int, held: Excluded) -> list[Taken]:
        """The first rows of each shard, in order, without those that are held back.

        At most so many, and not much more than TAKE_BYTES.
        """
        parameters = {
            # In turns: if there is more than can be taken, each shard comes first at some point.
            "shards": random.sample(shards, len(shards)),
            "most_of_a_shard": min(most, TAKE_OF_A_SHARD),
            "most": most,
            "most_bytes": TAKE_BYTES,
        }
        query, parameters = self._without(held, sql.SQL(_TAKE), parameters)
        self._cursor.execute(query, parameters, prepare=True)
        rows = self._cursor.fetchall()
        rows.sort(key=itemgetter(0))
        return [
            _new(Taken, (number, _new(Write, (topic, key, value, headers, partition, None))))
            for number, topic, key, value, partition, id_, packed in rows
            for headers in [((ID_HEADER, id_.encode()), *(_unpacked(packed) if packed else ()))]
        ]

    def is_empty(self, held: Excluded) -> bool:
        """Whether nothing waits in any shard, except what is held back."""
        query = sql.SQL("select from {table} row where app = %(app)s {but} limit 1")
        self._cursor.execute(*self._without(held, query, {}))
        return self._cursor.fetchone() is None

    def _without(
        self, held: Excluded, query: sql.SQL, parameters: dict[str, Any]
    ) -> tuple[sql.Composed, dict[str, Any]]:
        exceptions = [_BUT[name] for name, things in held._asdict().items() if things]
        return query.format(table=self._table, but=sql.SQL(" ".join(exceptions))), {
            **parameters,
            "app": self._app,
            "topics": list(held.topics),
            "rows": list(held.rows),
            "key_topics": [topic for topic, _ in held.keys],
            "keys": [key for _, key in held.keys],
        }


def _unpacked(packed: str) -> Headers:
    pairs = json.loads(packed)
    return tuple((name, None if text is None else b64decode(text)) for name, text in pairs)
