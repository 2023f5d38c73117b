"""The parts: what is measured, against what, and the limit of each."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from statistics import median
from time import monotonic
from typing import NamedTuple

from worker.world import World

Measure = Callable[..., dict[str, float]]
Part = Callable[[World, Measure], bool]

SLEEPING = 10_000
CONCURRENCY = 100
NOOP = 100_000
ROUNDS = 9
COPIED = 200_000
DRAINED = 20_000
RATE = 500
SECONDS = 20


def zipf(count: int, keys: int, seed: int = 7) -> list[bytes]:
    """Keys of which few are frequent."""
    weights = [1 / rank for rank in range(1, keys + 1)]
    chosen = random.Random(seed).choices(range(keys), weights, k=count)
    return [b"%d" % key for key in chosen]


class Case(NamedTuple):
    """One way to run records that wait."""

    told: str
    keys: list[bytes]
    ordering: str
    limit: float | None
    one_core: bool = False
    form: str = "threads"


def sleeping(world: World, measure: Measure) -> bool:
    """Handlers that wait 0 to 5 ms, in one partition."""
    rng = random.Random(3)
    waits = [rng.randrange(5000) for _ in range(SLEEPING)]
    even = [b"%d" % (number % 20) for number in range(SLEEPING)]
    skewed = zipf(SLEEPING, 1000)
    cases = [
        Case("key order, 20 keys", even, "key", 1.2),
        Case("key order, Zipf keys over 1,000", skewed, "key", 1.2),
        Case("unordered, threads", skewed, "unordered", None),
        Case("unordered, async", skewed, "unordered", 2.0, form="async"),
        Case("key order, 20 keys, --one-core", even, "key", 1.2, one_core=True),
        Case("key order, Zipf keys, --one-core", skewed, "key", 1.2, one_core=True),
        Case("unordered, threads, --one-core", skewed, "unordered", 1.6, one_core=True),
    ]
    print(f"{SLEEPING:,} records that wait 0 to 5 ms, one partition, concurrency {CONCURRENCY},")
    print("from the first handler's start to the last one's end, against the ideal; best of 2")
    _sleep(world, measure, cases[0], waits)  # once for the broker, which has just started
    bare = min(
        measure("bare_sleeping", waits=waits, concurrency=CONCURRENCY)["seconds"] for _ in range(2)
    )
    ratio = bare / (sum(waits) / CONCURRENCY / 1e6)
    print(f"  {'nothing but Python threads':<34} {bare * 1000:7.0f} ms   {ratio:.2f} of ideal")
    kept = []
    for case in cases:
        seconds = min(_sleep(world, measure, case, waits) for _ in range(2))
        ratio = seconds / (_ideal(case, waits) / 1e6)
        told = f"{case.told:<34} {seconds * 1000:7.0f} ms"
        kept.append(tell(told, ratio, "of ideal", at_most=case.limit))
    return all(kept)


def _sleep(world: World, measure: Measure, case: Case, waits: list[int]) -> float:
    topic, name = world.topic("sleeping"), world.new("app")
    world.own_topics(name)
    world.write(topic, [(key, b"%d" % wait) for key, wait in zip(case.keys, waits, strict=True)])
    found = measure(
        "sleeping",
        bootstrap=world.bootstrap,
        name=name,
        topic=topic,
        count=SLEEPING,
        ordering=case.ordering,
        form=case.form,
        concurrency=CONCURRENCY,
        one_core=case.one_core,
    )
    return found["seconds"]


def _ideal(case: Case, waits: list[int]) -> float:
    ideal = sum(waits) / CONCURRENCY
    if case.ordering != "key":
        return ideal
    sums: Counter[bytes] = Counter()
    for key, wait in zip(case.keys, waits, strict=True):
        sums[key] += wait
    return max(ideal, *sums.values())


def noop(world: World, measure: Measure) -> bool:
    """Handlers that do nothing: what redrive itself costs."""
    topic = world.topic("noop")
    world.write(topic, [(key, b"x" * 100) for key in zipf(NOOP, 1000)])
    given = {"bootstrap": world.bootstrap, "topic": topic, "count": NOOP}
    bare, ours = [], []
    for _ in range(ROUNDS):
        name = world.new("app")
        world.own_topics(name)
        bare.append(NOOP / measure("bare_noop", name=world.new("bare"), **given)["seconds"])
        ours.append(NOOP / measure("noop", name=name, concurrency=16, **given)["seconds"])
    print(f"{NOOP:,} records, nothing to do, Zipf keys over 1,000 in key order;")
    print(f"medians of {ROUNDS} rounds, of both in turns")
    print(f"  {'bare confluent-kafka loop':<34} {median(bare):9,.0f} records/s")
    told = f"{'worker, concurrency 16':<34} {median(ours):9,.0f} records/s"
    ratio = median(our / of_it for our, of_it in zip(ours, bare, strict=True))
    return tell(told, ratio, "of bare", at_least=0.4)


def copy(world: World, measure: Measure) -> bool:
    """From topic to topic, between the first and the last record's arrival."""
    topic = world.topic("copy", 2)
    world.write(topic, [(key, b"x" * 200) for key in zipf(COPIED, 1000)])
    given = {"bootstrap": world.bootstrap, "topic": topic, "count": COPIED}

    def one(kind: str, **more: object) -> float:
        name, out = world.new("app"), world.topic("copied", 2)
        world.own_topics(name)
        measure(kind, name=name, out=out, **given, **more)
        times = [record.timestamp or 0 for record in world.read(out)]
        return COPIED / ((max(times) - min(times)) / 1000)

    bare = max(one("bare_copy") for _ in range(2))
    ours = max(one("copy", concurrency=4) for _ in range(2))
    print(f"copy of {COPIED:,} records of 200 bytes, 2 partitions; best of 2")
    print(f"  {'bare confluent-kafka loop':<34} {bare:9,.0f} records/s")
    told = f"{'worker':<34} {ours:9,.0f} records/s"
    return tell(told, ours / bare, "of bare", at_least=0.7)


def waiting(world: World, measure: Measure) -> bool:
    """How late parked records run, at a steady rate."""
    name, topic, out = world.new("app"), world.topic("waiting", 4), world.topic("waited", 4)
    world.own_topics(name, "1s", "2s", "4s")
    writer = threading.Thread(target=_write_steadily, args=(world, topic))
    writer.start()
    found = measure(
        "retrying",
        bootstrap=world.bootstrap,
        name=name,
        topic=topic,
        out=out,
        delays="1s 2s 4s",
        count=RATE * SECONDS,
        concurrency=16,
    )
    writer.join()
    print(f"{RATE} records/s for {SECONDS} s, a fifth failing 1 to 3 times, 3 delays x 2")
    print(f"  early {found['early']:.0f}, lateness p50 {found['p50']:.0f} ms")
    kept = tell("lateness p99", found["p99"], "ms", at_most=50)
    return kept and not found["early"]


def drain(world: World, measure: Measure) -> bool:
    """Many records that become due together."""
    name, topic, out = world.new("app"), world.topic("drain", 4), world.topic("drained", 4)
    world.own_topics(name, "2s")
    world.write(topic, [(b"%d" % number, b"1") for number in range(DRAINED)])
    measure(
        "retrying",
        bootstrap=world.bootstrap,
        name=name,
        topic=topic,
        out=out,
        delays="2s",
        count=DRAINED,
        concurrency=16,
    )
    parked = max(record.timestamp or 0 for record in world.read(f"{name}.retry.2s"))
    arrived = max(record.timestamp or 0 for record in world.read(out))
    print(f"{DRAINED:,} records that all fail once, 2 s delay")
    return tell("drained after the last was due", arrived - parked - 2000, "ms", at_most=1000)


def memory(world: World, measure: Measure) -> bool:
    """A handler slower than its topic."""
    name, topic = world.new("app"), world.topic("memory", 2)
    world.own_topics(name)
    for _ in range(10):
        world.write(topic, [(b"%d" % n, b"x" * 1000) for n in range(30_000)])
    found = measure("memory", bootstrap=world.bootstrap, name=name, topic=topic, seconds=18)
    print("300,000 records of 1,000 bytes before a handler that takes 5 ms")
    print(f"  resident: {found['early']:.0f} MB, later {found['late']:.0f} MB")
    return tell("memory", found["late"] / found["early"], "of before", at_most=1.1)


def _write_steadily(world: World, topic: str) -> None:
    began, sent, tick = monotonic(), 0, threading.Event()
    while sent < RATE * SECONDS:
        due = min(int((monotonic() - began) * RATE), RATE * SECONDS)
        world.write(topic, [(b"%d" % (n % 1000), b"%d" % _fails(n)) for n in range(sent, due)])
        sent = due
        tick.wait(0.02)


def _fails(number: int) -> int:
    return number // 5 % 3 + 1 if number % 5 == 0 else 0


def tell(
    what: str,
    figure: float,
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> bool:
    """Print a figure; returns whether it keeps its limits."""
    kept = (at_most is None or figure <= at_most) and (at_least is None or figure >= at_least)
    limits = [
        f"  limit {word} {limit:g}"
        for word, limit in (("at most", at_most), ("at least", at_least))
        if limit is not None
    ]
    missed = "" if kept else "  MISSED"
    print(f"  {what}   {figure:.2f} {unit}{''.join(limits)}{missed}", flush=True)
    return kept


PARTS: dict[str, Part] = {
    "sleeping": sleeping,
    "noop": noop,
    "copy": copy,
    "waiting": waiting,
    "drain": drain,
    "memory": memory,
}
