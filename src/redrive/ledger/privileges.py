"""What a role must be allowed to do in the ledger's schema, and the GRANTs for what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

from redrive.guarantees import Guarantee
from redrive.ledger.connection import Query, Row

Privileges = Mapping[str, Sequence[str]]
"""By table."""

RELAY: Final[Privileges] = {"migration": ("select",), "outbox": ("select", "delete")}


def needed(guarantee: Guarantee) -> Privileges:
    """What an app with this guarantee needs."""
    inbox: Privileges = {"inbox": ("select", "insert", "update", "delete")}
    outbox: Privileges = {
        "header_column": ("select",),
        "sent": ("select", "insert", "delete"),
        "outbox": ("insert",),
    }
    return {
        "migration": ("select",),
        **(inbox if guarantee.inbox else {}),
        **(outbox if guarantee.outbox else {}),
    }


def asking(schema: str, privileges: Privileges) -> tuple[Query, tuple[Any, ...]]:
    """The query for the missing GRANTs, one per row, and its parameters.

    It needs no privilege itself. Schemas and tables that do not exist are left out: a migration
    creates those, not a grant.
    """
    pairs = [(table, each) for table, words in privileges.items() for each in words]
    tables, words = map(list, zip(*pairs, strict=True))
    return _MISSING, (schema, tables, words, schema)


def told(rows: Sequence[Row]) -> str:
    """The missing GRANTs, ready to be run; empty: none is missing."""
    return " ".join(f"{grant};" for (grant,) in rows)


def missing(connection: psycopg.Connection[Any], schema: str, privileges: Privileges) -> str:
    """The GRANTs that this connection's role lacks, ready to be run; empty: none."""
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        return told(cursor.execute(*asking(schema, privileges)).fetchall())


def sentence(schema: str, grants: str) -> str:
    """What is wrong, and what to run."""
    return f"privileges are missing on the ledger in schema {schema}: have its owner run `{grants}`"


_MISSING: Final = sql.SQL(
    "select format('grant usage on schema %%I to %%I', nspname, current_user) from pg_namespace"
    " where nspname = %s and not has_schema_privilege(oid, 'usage')"
    " union all (select format('grant %%s on %%I.%%I to %%I',"
    " string_agg(need.word, ', ' order by need.number), space.nspname, found.relname, current_user)"
    " from pg_namespace space join pg_class found on found.relnamespace = space.oid"
    " join unnest(%s::text[], %s::text[]) with ordinality as need(relation, word, number)"
    " on need.relation = found.relname"
    " where space.nspname = %s and not has_table_privilege(found.oid, need.word)"
    " group by space.nspname, found.relname order by min(need.number))"
)
