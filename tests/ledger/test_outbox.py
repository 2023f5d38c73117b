"""Writing to the outbox: in the sender's transaction, in commit order, each id once."""

from __future__ import annotations

import asyncio
import base64
import threading
import uuid

import psycopg
import pytest

from redrive.errors import DuplicateOutboxId
from redrive.ledger.header_columns import add_header_columns, column_of
from redrive.ledger.names import BUCKETS, SHARDS
from redrive.ledger.outbox import Outbound, Outbox, aggregate_number
from redrive.local.waiting import wait_until
from redrive.record import Write

OUTBOX = Outbox("shop")


def send(value, key=b"k", topic="orders", chosen=None, **more):
    return Outbound(Write(topic, key, value, **more), chosen)


def rows(connection, columns="payload"):
    query = f"select {columns} from redrive.outbox order by number"  # noqa: S608 -- our own words
    found = connection.execute(query).fetchall()
    return [row[0] for row in found] if "," not in columns else found


def test_a_row_is_the_record_byte_for_byte(connection):
    headers = (("a", b"\xff\x00"), ("a", None), ("", b""), ("nul\0", b"1"))
    write = Write("orders", b"\x00\xfe", b"\xff\x00value", headers, 3)
    OUTBOX.insert(connection, [Outbound(write)])
    found = rows(connection, "topic, key, payload, partition, headers, app, aggregatetype")
    packed = [[name, v if v is None else base64.b64encode(v).decode()] for name, v in headers]
    assert found == [("orders", b"\x00\xfe", b"\xff\x00value", 3, packed, "shop", "orders")]


def test_nulls_stay_nulls(connection):
    OUTBOX.insert(connection, [send(None, key=None)])
    found = rows(connection, "key, payload, partition, headers, aggregateid")
    assert found == [(None, None, None, None, None)]


def test_aggregateid_is_the_key_as_text(connection):
    OUTBOX.insert(connection, [send(b"", key="grün".encode()), send(b"", key=b"\xff\x00")])
    assert rows(connection, "aggregateid") == ["grün", "��"]


def test_ids_are_random_unless_chosen(connection):
    OUTBOX.insert(connection, [send(b"1"), send(b"2"), send(b"3", chosen="order-3")])
    first, second, third = rows(connection, "id")
    assert uuid.UUID(first) != uuid.UUID(second)
    assert third == "order-3"


def test_the_id_of_another_record_is_not_passed_on(connection):
    OUTBOX.insert(connection, [send(b"", headers=(("id", b"theirs"), ("b", b"1")))])
    assert rows(connection, "headers") == [[["b", "MQ=="]]]


def test_order_within_an_aggregate_is_the_order_of_sends(connection):
    sends = [send(b"%d" % number, key=b"%d" % (number % 7)) for number in range(500)]
    OUTBOX.insert(connection, sends)
    for key in range(7):
        found = connection.execute(
            "select payload from redrive.outbox where key = %s order by number", [b"%d" % key]
        )
        assert [int(payload) for (payload,) in found] == [*range(key, 500, 7)]


def test_a_rolled_back_transaction_leaves_nothing(connection):
    OUTBOX.insert(connection, [send(b"1", chosen="one")])
    connection.rollback()
    assert rows(connection) == []
    OUTBOX.insert(connection, [send(b"1", chosen="one")])


@pytest.mark.parametrize("published", [False, True], ids=["waiting", "published"])
def test_a_chosen_id_counts_once(connection, published):
    OUTBOX.insert(connection, [send(b"1", chosen="a, b=(c)")])
    if published:
        connection.execute("delete from redrive.outbox")
    connection.commit()
    with pytest.raises(DuplicateOutboxId) as caught:
        OUTBOX.insert(connection, [send(b"1", chosen="fresh"), send(b"2", chosen="a, b=(c)")])
    assert caught.value.id == "a, b=(c)"
    connection.rollback()
    assert rows(connection) == [] if published else [b"1"]


def test_a_chosen_id_twice_in_one_call_counts_once(connection):
    with pytest.raises(DuplicateOutboxId):
        OUTBOX.insert(connection, [send(b"1", chosen="a"), send(b"2", chosen="a")])


def test_two_apps_may_choose_the_same_id(connection):
    OUTBOX.insert(connection, [send(b"1", chosen="a")])
    Outbox("other").insert(connection, [send(b"2", chosen="a")])
    assert rows(connection) == [b"1", b"2"]


def test_a_duplicate_id_within_a_savepoint_leaves_the_rest(connection):
    OUTBOX.insert(connection, [send(b"1", chosen="a")])
    with pytest.raises(DuplicateOutboxId), connection.transaction():
        OUTBOX.insert(connection, [send(b"2", chosen="a")])
    connection.commit()
    assert rows(connection) == [b"1"]


def test_a_rival_of_an_id_waits_and_goes_on_when_its_owner_rolls_back(connection, other):
    OUTBOX.insert(connection, [send(b"1", chosen="a")])
    rival = threading.Thread(target=OUTBOX.insert, args=(other, [send(b"2", chosen="a")]))
    rival.start()
    wait_for_lock(connection)
    connection.rollback()
    rival.join(30)
    other.commit()
    assert rows(connection) == [b"2"]


def test_numbers_are_in_the_order_of_commits_within_an_aggregate(connection, other):
    OUTBOX.insert(connection, [send(b"first")])
    late = threading.Thread(target=OUTBOX.insert, args=(other, [send(b"second")]))
    late.start()
    wait_for_lock(connection)
    connection.commit()
    late.join(30)
    other.commit()
    assert rows(connection) == [b"first", b"second"]


def test_other_aggregates_do_not_wait(connection, other):
    OUTBOX.insert(connection, [send(b"1", key=b"one")])
    OUTBOX.insert(other, [send(b"2", key=b"two"), send(b"3", key=None)])
    other.commit()
    assert rows(other) == [b"2", b"3"]


def test_two_lots_in_opposite_order_do_not_deadlock(database):
    """Locks are taken in one order: whoever waits for one holds none that comes after it."""
    sends = [send(b"", key=b"%d" % number) for number in range(2)]
    low, high = sorted(sends, key=lambda one: aggregate_number(one.write) % BUCKETS)
    locks = "select granted from pg_locks where locktype = 'advisory' and pid = %s"
    with (
        psycopg.connect(database) as one,
        psycopg.connect(database) as other,
        psycopg.connect(database, autocommit=True) as watching,
    ):
        OUTBOX.insert(one, [low])
        thread = threading.Thread(target=OUTBOX.insert, args=(other, [high, low]))
        thread.start()
        mine = (other.info.backend_pid,)
        assert wait_until(lambda: (False,) in watching.execute(locks, mine).fetchall(), timeout=30)
        held = watching.execute(locks, mine).fetchall()
        one.commit()
        thread.join(60)
        assert held == [(False,)]
        assert len(watching.execute(locks, mine).fetchall()) == 2
        other.commit()


def test_a_large_lot_needs_few_locks(connection):
    OUTBOX.insert(connection, [send(b"", key=b"%d" % number) for number in range(20_000)])
    held = connection.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    ).fetchone()
    assert held == (1024,)


def test_shards_are_of_the_aggregate_and_all_are_used(connection):
    sends = [send(b"", key=b"%d" % (number % 1000)) for number in range(2000)]
    OUTBOX.insert(connection, sends)
    assert {*rows(connection, "shard")} == {*range(SHARDS)}
    found = connection.execute("select count(distinct shard) from redrive.outbox group by key")
    assert {count for (count,) in found} == {1}
    assert aggregate_number(Write("orders", None, b"")) is None


def test_relays_are_notified_at_the_commit(connection, other):
    other.autocommit = True
    other.execute("listen redrive_outbox")
    OUTBOX.insert(connection, [send(b"1")])
    assert [*other.notifies(timeout=0, stop_after=1)] == []
    connection.commit()
    assert len([*other.notifies(timeout=30, stop_after=1)]) == 1


def test_the_same_on_an_asynchronous_connection(database, connection):
    async def work():
        async with await psycopg.AsyncConnection.connect(database) as there:
            await OUTBOX.insert_async(there, [send(b"1", chosen="a")])
            await there.commit()
            with pytest.raises(DuplicateOutboxId):
                await OUTBOX.insert_async(there, [send(b"2", chosen="a")])
            await OUTBOX.insert_async(there, [])

    asyncio.run(work())
    assert rows(connection) == [b"1"]


def test_nothing_to_send_asks_nothing():
    OUTBOX.insert(None, [])


def test_headers_with_columns_of_their_own(database, connection):
    with psycopg.connect(database, autocommit=True) as owner:
        for _ in range(2):
            add_header_columns(owner, ["traceparent", "Content-Type"])
    headers = (("traceparent", b"old"), ("traceparent", b"00-\xff"), ("Content-Type", None))
    Outbox("shop").insert(connection, [send(b"", headers=headers), send(b"")])
    found = rows(connection, "header_traceparent, header_content_type")
    assert found == [("00-�", None), (None, None)]


def test_a_column_is_named_after_its_header():
    assert column_of("X-Trace.Id") == "header_x_trace_id"


def wait_for_lock(connection):
    """Until somebody waits for what this transaction holds."""
    waiting = "select count(*) from pg_locks where not granted and pid != pg_backend_pid()"
    with psycopg.connect(connection.info.dsn, password=connection.info.password) as looking:
        for _ in range(10_000):
            if looking.execute(waiting).fetchone() != (0,):
                return
    raise AssertionError("nobody waits")
