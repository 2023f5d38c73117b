"""What a guard and strict order cost where nothing fails, and strict order where something does."""

from __future__ import annotations

from statistics import median

from worker.parts import NOOP, ROUNDS, Measure, Part, tell, zipf
from worker.world import World

FAILING = 50_000
PARKED = 100_000
AT_ONCE = 10_000


def guard(world: World, measure: Measure) -> bool:
    """With a guard, and without."""
    return _idle(world, measure, "with a guard", at_least=0.98, guarded=True)


def strict(world: World, measure: Measure) -> bool:
    """Strict order beside order by key: with nothing parked, with 1 % failing, and at take-over."""
    kept = _idle(world, measure, "in strict order", at_least=0.97, ordering="strict")
    _one_in_a_hundred(world, measure)
    _take_over(world, measure)
    return kept


def _idle(world: World, measure: Measure, what: str, *, at_least: float, **special: object) -> bool:
    topic = world.topic("price")
    world.write(topic, [(key, b"x" * 100) for key in zipf(NOOP, 1000)])

    def one(**more: object) -> float:
        name = _app(world, "1s")
        given = {"bootstrap": world.bootstrap, "topic": topic, "count": NOOP, "concurrency": 16}
        return NOOP / measure("noop", name=name, **given, **more)["seconds"]

    one()  # once for the broker, which has just started
    plain, ours = [], []
    for number in range(ROUNDS):  # in turns, and each is the first of its turn as often
        for which in (plain, ours) if number % 2 else (ours, plain):
            which.append(one(**special) if which is ours else one())
    print(f"{NOOP:,} records, nothing to do, Zipf keys over 1,000;")
    print(f"medians of {ROUNDS} rounds, of both in turns")
    spread = f"{min(plain):,.0f} to {max(plain):,.0f}"
    print(f"  {'key order':<34} {median(plain):9,.0f} records/s ({spread})")
    told = f"{what:<34} {median(ours):9,.0f} records/s"
    ratio = median(our / of_it for our, of_it in zip(ours, plain, strict=True))
    return tell(told, ratio, "of key order", at_least=at_least)


def _one_in_a_hundred(world: World, measure: Measure) -> None:
    topic = world.topic("failing")
    keys = zipf(FAILING, 1000)
    world.write(topic, [(key, b"%d" % (n % 100 == 0)) for n, key in enumerate(keys)])
    print(f"{FAILING:,} records, Zipf keys over 1,000, one in a hundred fails once; 1 s delay")
    for ordering in ("key", "strict", "key", "strict"):
        given = {"bootstrap": world.bootstrap, "topic": topic, "delay": "1s", "ordering": ordering}
        found = measure("failing", name=_app(world, "1s"), count=FAILING, until="done", **given)
        print(f"  {ordering:<34} {found['seconds']:9.2f} s, {found['cpu']:.2f} s of CPU")


def _take_over(world: World, measure: Measure) -> None:
    topic = world.topic("parked")
    for first in range(0, PARKED, AT_ONCE):
        world.write(topic, [(b"%d" % n, b"9") for n in range(first, first + AT_ONCE)])
    print(f"a worker starts, with {PARKED:,} records parked, and handles one of another key")
    for ordering in ("key", "strict"):
        given = {"bootstrap": world.bootstrap, "topic": topic, "delay": "1h", "ordering": ordering}
        given["name"] = _app(world, "1h")
        measure("failing", count=PARKED, until="park", **given)
        world.write(topic, [(b"fresh", b"0")])
        found = measure("failing", count=1, until="done", **given)
        print(f"  {ordering:<34} {found['seconds']:9.2f} s, {found['cpu']:.2f} s of CPU")


def _app(world: World, delay: str) -> str:
    name = world.new("app")
    world.own_topics(name, delay, "behind", partitions=1)
    return name


PRICES: dict[str, Part] = {"guard": guard, "strict": strict}
