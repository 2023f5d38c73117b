"""Old records are handled again, on a real Kafka and PostgreSQL: exactly those in range."""

from __future__ import annotations

import json
import signal
from collections import Counter
from datetime import UTC, datetime
from time import time

import pytest

from redrive.engines import preflight
from redrive.errors import NotReadyError
from redrive.kafka.admin import Admin
from redrive.kafka.progress import KafkaProgress
from redrive.local.waiting import wait_until
from redrive.record import TopicPartition, Write
from redrive.rewind import Where, open_rewinder

RECORDS = 30
UNTIL_EMPTY = ("--engine", "worker", "--until-empty")


def handled(made):
    """How often each record was handled."""
    return Counter(record.value.decode() for record in made.read(f"{made.name}.done"))


def send(made, *words):
    made.publisher.publish(
        [
            Write(f"{made.name}.orders", b"k%d" % (n % 7), word.encode())
            for n, word in enumerate(words)
        ]
    )


def begun(made):
    """An app that has handled some records; gives the places in the middle of each partition."""
    send(made, *(f"good {n}" for n in range(RECORDS)))
    made.run("run", made.target, *UNTIL_EMPTY)
    assert set(handled(made).values()) == {1}
    source = f"{made.name}.orders"
    ends = [made.log.bounds(TopicPartition(source, n))[1] for n in range(3)]
    return {n: end // 2 for n, end in enumerate(ends)}


def in_range(made, starts):
    return {
        record.value.decode()
        for record in made.read(f"{made.name}.orders")
        if record.offset >= starts[record.partition]
    }


def to(made, starts):
    return [
        word for n, start in starts.items()
        for word in ("--to-offset", f"{made.name}.orders[{n}]@{start}")
    ]  # fmt: skip


def test_exactly_the_records_in_range_are_handled_again_by_a_worker(shop):
    made = shop()  # with transactions: tests/engines/contract/test_rewind.py
    starts = begun(made)
    again = in_range(made, starts)
    plan = json.loads(made.run("rewind", made.target, *to(made, starts), "--json"))
    assert (plan["records"], plan["handled"], plan["left_out"]) == (len(again), len(again), {})
    said = made.run("rewind", made.target, *to(made, starts), "--yes", "--reason", "prices")
    assert f"done, {len(again)} are handled again" in said
    [job] = made.jobs()
    assert (job["kind"], job["status"], job["why"]) == ("rewind", "done", "prices")
    made.run("run", made.target, *UNTIL_EMPTY)
    found = handled(made)
    assert {word for word, times in found.items() if times == 2} == again
    assert {word for word, times in found.items() if times == 1} == {*found} - again


def test_what_an_inbox_has_forgotten_is_handled_again_and_nothing_else(shop, database):
    made = shop(delivery="idempotent")
    starts = begun(made)
    again = in_range(made, starts)
    where = to(made, starts)
    dry = made.run("rewind", made.target, *where, "--dry-run")
    assert f"{len(again)} records; {len(again)} of them were handled and would be dropped" in dry
    made.run("rewind", made.target, *where, "--yes")
    made.run("run", made.target, *UNTIL_EMPTY)
    assert set(handled(made).values()) == {1}
    ids = "select id, source from redrive.inbox order by source"
    before = database.execute(ids).fetchall()
    out = made.run("rewind", made.target, *where, "--forget", "--yes")
    assert f"{len(again)} ids were forgotten by the inbox first" in out
    kept = database.execute(ids).fetchall()
    assert len(before) == RECORDS
    assert len(kept) == RECORDS - len(again)
    assert {*kept} <= {*before}
    made.run("run", made.target, *UNTIL_EMPTY)
    found = handled(made)
    assert {word for word, times in found.items() if times == 2} == again


def test_an_app_that_runs_is_said_and_left_alone(shop, monkeypatch):
    made = shop()
    starts = begun(made)
    made.start("run", made.target, "--engine", "worker")
    rewinder = open_rewinder(made.app, made.settings, "alice")
    where = Where(offsets=tuple(f"{made.name}.orders[{n}]@{at}" for n, at in starts.items()))
    admin = Admin(made.settings)
    assert wait_until(lambda: admin.has_members(made.name), 120)
    assert "is running as a worker" in rewinder.plan(where).in_the_way
    monkeypatch.setattr(preflight, "MEMBERS_GONE_WITHIN", 0)
    with pytest.raises(NotReadyError, match="stop the worker first"):
        rewinder.rewind(where)
    places = [TopicPartition(f"{made.name}.orders", n) for n in starts]
    committed = KafkaProgress(made.settings, made.name).committed(places)
    assert all(committed[place].offset > starts[place.partition] for place in places)


def test_records_of_one_key_are_handled_again_while_the_app_runs(shop, database):
    made = shop(delivery="idempotent")
    begun(made)
    source = made.read(f"{made.name}.orders")
    again = {record.value.decode() for record in source if record.key == b"k3"}
    worker = made.start("run", made.target, "--engine", "worker")
    where = [*to(made, dict.fromkeys(range(3), 0)), "--key", "k3"]
    dry = json.loads(made.run("rewind", made.target, *where, "--json"))
    assert (dry["records"], dry["handled"], dry["left_out"]) == (
        len(again),
        0,
        {"done": len(again)},
    )
    made.run("rewind", made.target, *where, "--forget", "--yes")
    assert wait_until(lambda: sum(handled(made).values()) >= RECORDS + len(again), 120)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=120)
    found = handled(made)
    assert {word for word, times in found.items() if times == 2} == again
    assert {word for word, times in found.items() if times == 1} == {*found} - again
    assert database.execute("select count(*) from redrive.inbox").fetchone() == (RECORDS,)


def test_a_time_means_the_records_from_then_on(shop):
    made = shop()
    source, began = f"{made.name}.orders", int(time() * 1000) - 60_000
    made.publisher.publish(
        [
            Write(source, b"k%d" % (n % 7), f"good {n}".encode(), (), n % 3, began + 1_000 * n)
            for n in range(30)
        ]
    )
    made.run("run", made.target, *UNTIL_EMPTY)
    then = datetime.fromtimestamp((began + 20_000) / 1000, UTC)
    at = ("--to-time", then.isoformat(timespec="milliseconds"))
    said = made.run("rewind", made.target, *at)
    assert "10 records would be handled again; nothing was written" in said
    made.run("rewind", made.target, *at, "--yes")
    made.run("run", made.target, *UNTIL_EMPTY)
    twice = {word for word, times in handled(made).items() if times == 2}
    assert twice == {f"good {n}" for n in range(20, 30)}
    refused = made.run("rewind", made.target, "--to-offset", f"{source}[0]@11", code=2)
    assert "rewind only goes back" in refused
