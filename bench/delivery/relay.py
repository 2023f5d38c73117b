"""The relay against Debezium on the same table: how fast a backlog drains, how late a row is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
from delivery.world import APP, Post, World, latencies, percentile

sys.path.append(str(Path(__file__).parents[2] / "tests" / "ledger"))
from cdc.connect import Connect, documented_sql

ROWS = 100_000
ROUNDS = 2
RATE, SECONDS, TURNS = 500, 6, 5
FASTER = 1.5
"""How many times Debezium's rate the relay must have."""

SOON = {"poll.interval.ms": "10"}
_PARTITION = "partition:partition"


class Late(NamedTuple):
    """From commit to Kafka at a steady rate, in ms."""

    p50: float
    p99: float


def run(world: World) -> bool:
    """Print each figure with its limit; whether all are kept."""
    print(f"\n{ROWS:,} rows of 1,000 keys at once, best of {ROUNDS};")
    print(f"{RATE} rows/s for {SECONDS} s, {TURNS} times in turns, the middle one by p99")
    with _debezium(world, SOON) as post:
        theirs = [_rate(post)]
        soonest, ours = _late_in_turns(world, post)
    with _relay(world) as post:
        rate = _rate(post)
    with _debezium(world, {}) as post:
        theirs.append(_rate(post))
        default = _middle([_late(post) for _ in range(TURNS)])
    _tell("debezium, polling every 10 ms", theirs[0], soonest)
    _tell("debezium, as it comes", theirs[1], default)
    _tell("redrive relay", rate, ours)
    lowest = min(soonest.p99, default.p99)
    fast, soon = rate >= FASTER * max(theirs), ours.p99 < lowest
    print(f"rate     {rate / max(theirs):6.2f} times Debezium's   limit {FASTER}   {_word(fast)}")
    print(f"p99      {ours.p99:6.1f} ms   limit {lowest:.1f} ms, Debezium's best   {_word(soon)}")
    print(f"load     {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return fast and soon


def _tell(name: str, rate: float, late: Late) -> None:
    print(f"{name:30} {rate:10,.0f} rows/s   p50 {late.p50:6.1f} ms   p99 {late.p99:6.1f} ms")


def _rate(post: Post) -> float:
    """A backlog that is there all at once: from its commit to the last arrival."""
    rates = []
    for _ in range(ROUNDS):
        begin = post.sent
        committed = post.fill(ROWS, lot=ROWS)
        post.wait_for(post.sent)
        last = max(record.timestamp for record in post.arrived(begin))
        rates.append(ROWS / (last - committed) * 1000)
    return max(rates)


def _late_in_turns(world: World, theirs: Post) -> tuple[Late, Late]:
    """In turns, so that whatever else the machine does meets both."""
    with _relay(world) as ours:
        turns = [(_late(theirs), _late(ours)) for _ in range(TURNS)]
    for their, our in turns:
        print(f"  a turn: p99 {their.p99:6.1f} ms debezium, {our.p99:6.1f} ms relay")
    return _middle([their for their, _ in turns]), _middle([our for _, our in turns])


def _middle(measured: Sequence[Late]) -> Late:
    """Not the best: that would be luck. Not the worst: that would be the neighbours."""
    return sorted(measured, key=lambda late: late.p99)[len(measured) // 2]


def _late(post: Post) -> Late:
    begin = post.sent
    committed = post.at_rate(RATE, SECONDS)
    post.wait_for(post.sent)
    found = latencies(committed, post.arrived(begin))
    return Late(percentile(found, 0.5), percentile(found, 0.99))


@contextmanager
def _relay(world: World) -> Iterator[Post]:
    post = world.post()
    with _relaying(world, post):
        _warm_up(post)
        yield post


@contextmanager
def _debezium(world: World, changes: dict[str, str]) -> Iterator[Post]:
    post = world.post()
    with psycopg.connect(post.dsn, autocommit=True) as connection:
        connection.execute(documented_sql())
    folder = world.folder / post.name
    folder.mkdir()
    # The benchmark's rows have no headers of their own.
    changes = changes | {"transforms.outbox.table.fields.additional.placement": _PARTITION}
    with Connect(world.stack, post.name, folder, **changes):
        _warm_up(post)
        yield post


def _warm_up(post: Post) -> None:
    """Both are connected then, and Java gets faster by doing."""
    post.fill(ROWS // 5)
    post.wait_for(post.sent)


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
