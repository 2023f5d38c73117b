"""The relay against Debezium on the same table: how fast a backlog drains, how late a row is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
from delivery.world import APP, Post, World, latencies, percentile

sys.path.append(str(Path(__file__).parents[2] / "tests" / "ledger"))
from cdc.connect import Connect, documented_sql

ROWS = 100_000
ROUNDS = 2
RATE, SECONDS, WARM_UP = 500, 20, 5
FASTER = 1.5
"""How many times Debezium's rate the relay must have."""

SOON = {"poll.interval.ms": "10"}


class Measured(NamedTuple):
    """Rows per second out of a backlog; from commit to Kafka at a steady rate, in ms."""

    rate: float
    p50: float
    p99: float


def run(world: World) -> bool:
    """Print each figure with its limit; whether all are kept."""
    print(f"\n{ROWS:,} rows of 1,000 keys, best of {ROUNDS}; then {RATE} rows/s for {SECONDS} s")
    soonest = _told("debezium, polling every 10 ms", _debezium(world, SOON))
    ours = _told("redrive relay", _relay(world))
    default = _told("debezium, as it comes", _debezium(world, {}))
    rate, p99 = ours.rate, ours.p99
    theirs = max(soonest.rate, default.rate)
    lowest = min(soonest.p99, default.p99)
    fast = rate >= FASTER * theirs
    soon = p99 < lowest
    print(f"rate     {rate / theirs:6.2f} times Debezium's   limit {FASTER}   {_word(fast)}")
    print(f"p99      {p99:6.1f} ms   limit {lowest:.1f} ms, Debezium's best   {_word(soon)}")
    print(f"load     {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return fast and soon


def _told(name: str, measured: Measured) -> Measured:
    rate, p50, p99 = measured
    print(f"{name:32} {rate:10,.0f} rows/s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms", flush=True)
    return measured


def _relay(world: World) -> Measured:
    post = world.post()
    with _relaying(world, post):
        return _measured(post)


def _debezium(world: World, changes: dict[str, str]) -> Measured:
    post = world.post()
    with psycopg.connect(post.dsn, autocommit=True) as connection:
        connection.execute(documented_sql())
    folder = world.folder / post.name
    folder.mkdir()
    # The benchmark's rows have no headers of their own.
    changes = changes | {
        "transforms.outbox.table.fields.additional.placement": "partition:partition"
    }
    with Connect(world.stack, post.name, folder, **changes):
        return _measured(post)


def _measured(post: Post) -> Measured:
    post.fill(ROWS // 5)  # both are connected, and Java gets faster by doing
    post.wait_for(post.sent)
    return Measured(max(_rate(post) for _ in range(ROUNDS)), *_latency(post))


def _rate(post: Post) -> float:
    """A backlog that is there all at once: from its commit to the last arrival."""
    begin = post.sent
    committed = post.fill(ROWS, lot=ROWS)
    post.wait_for(post.sent)
    return ROWS / (max(record.timestamp for record in post.arrived(begin)) - committed) * 1000


def _latency(post: Post) -> tuple[float, float]:
    post.at_rate(RATE, WARM_UP)
    post.wait_for(post.sent)
    begin = post.sent
    committed = post.at_rate(RATE, SECONDS)
    post.wait_for(post.sent)
    found = latencies(committed, post.arrived(begin))
    return percentile(found, 0.5), percentile(found, 0.99)


@contextmanager
def _relaying(world: World, post: Post) -> Iterator[None]:
    """`redrive relay`, as a process of its own."""
    (world.folder / "bench_app.py").write_text(
        f"from redrive import App\napp = App({APP!r})\n"
        "@app.handler('none')\ndef handle(record, ctx): ...\n"
    )
    where = ["--bootstrap", post.settings.servers(), "--database", post.dsn]
    with subprocess.Popen(
        [sys.executable, "-m", "redrive", "relay", "bench_app:app", *where],
        cwd=world.folder,
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.terminate()


def _word(kept: bool) -> str:
    return "kept" if kept else "MISSED"
