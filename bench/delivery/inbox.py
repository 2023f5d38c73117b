"""The inbox against a bare batched insert of the same ids: what remembering costs."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from time import perf_counter

import psycopg
from delivery.world import APP, World

from redrive.coroutines import run_sync
from redrive.delivery.store import Claim, InboxId, Marks
from redrive.ledger.postgres_store import PostgresStore

LOT = 500
LOTS = 40
ROUNDS = 5
LEAST = 0.5
"""The share of the bare insert's rate that the inbox must have."""


def run(world: World) -> bool:
    """Print both rates and their ratio; whether the limit is kept."""
    dsn = world.post().dsn
    with psycopg.connect(dsn) as connection:
        connection.execute("create table bare (app text, id text, primary key (app, id))")
        connection.commit()
        store = PostgresStore(dsn, APP, connections=1)
        rates = {"bare": 0.0, "inbox": 0.0}
        for number in range(ROUNDS):
            lots = [_ids(number * LOTS + lot) for lot in range(LOTS)]
            rates["bare"] = max(rates["bare"], _rate(lots, lambda ids: _insert(connection, ids)))
            rates["inbox"] = max(rates["inbox"], _rate(lots, lambda ids: _claim(store, ids)))
        store.close()
    print(f"\n{LOTS} lots of {LOT} ids, one transaction each, best of {ROUNDS}")
    print(f"bare batched insert   {rates['bare']:10,.0f} ids/s")
    print(f"inbox, claim to done  {rates['inbox']:10,.0f} ids/s")
    share = rates["inbox"] / rates["bare"]
    kept = share >= LEAST
    print(f"ratio    {share:6.2f}   limit {LEAST}   {'kept' if kept else 'MISSED'}")
    print(f"load     {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return kept


def _ids(lot: int) -> list[str]:
    # As ids come: not in the order of the index, though each lot is sorted.
    return sorted(blake2b(b"%d" % (lot * LOT + n), digest_size=16).hexdigest() for n in range(LOT))


def _rate(lots: list[list[str]], write: Callable[[list[str]], None]) -> float:
    begin = perf_counter()
    for ids in lots:
        write(ids)
    return len(lots) * LOT / (perf_counter() - begin)


def _insert(connection: psycopg.Connection, ids: list[str]) -> None:
    insert = "insert into bare (app, id) select %s, unnest(%s::text[]) on conflict do nothing"
    connection.execute(insert, (APP, ids))
    connection.commit()


def _claim(store: PostgresStore, ids: list[str]) -> None:
    run_sync(_unit(store, ids))


async def _unit(store: PostgresStore, ids: list[str]) -> None:
    claims = [
        Claim(
            InboxId("orders", each),
            1,
            blake2b(each.encode(), digest_size=16).digest(),
            "orders[0]@1",
        )
        for each in ids
    ]
    async with store.session(is_async=False) as session:
        assert await session.claim(claims) == {}
        await session.mark(Marks())
        await session.commit()
