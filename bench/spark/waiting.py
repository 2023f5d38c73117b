"""How late parked records run, and what they cost those that do not fail."""

from __future__ import annotations

from spark.world import Figure, World, at_rate, percentile, tell

import redrive.spark
from redrive.engines.spark.handle import Handle
from redrive.record import Write

RATE = 500
SETTLING = 10
"""Seconds until a run is under way: its first tasks make their clients."""
SECONDS = 40
DRAINED = 20_000
DRAINED_DELAY = 2000

APP = """
from redrive import App, Retry, RetryPolicy

app = App({name!r}, ordering="key", retry=RetryPolicy({delays!r}))


@app.handler({topic!r})
def handle(record, ctx):
    fails = int(record.value)
    if ctx.attempt <= fails:
        raise Retry("not yet")
    ctx.send({out!r}, record.value, key=record.key, headers={{"sent": str(record.timestamp)}})
"""


def run(world: World) -> bool:
    """Measure; gives whether the limits were kept."""
    _steady(world, "warm-up", failing=5, seconds=5)
    healthy = _steady(world, "healthy", failing=0, seconds=SECONDS)
    mixed = _steady(world, "mixed", failing=5, seconds=SECONDS)
    ratio = mixed.healthy(0.99) / healthy.healthy(0.99)
    drained = _drain(world)
    print(f"{RATE} records/s for {SECONDS} s, a fifth of them failing 1 to 3 times;")
    print("1 s, 2 s and 4 s delays of 2 partitions each, both lanes running")
    late = mixed.late(0.99)
    kept = tell(
        [
            Figure("lateness p50", f"{mixed.late(0.5):.0f} ms"),
            Figure("lateness p99", f"{late:.0f} ms", "under 1000 ms", late < 1000),
            Figure("early", f"{mixed.early}", "none", mixed.early == 0),
            Figure("healthy alone p50", f"{healthy.healthy(0.5):.0f} ms"),
            Figure("healthy alone p99", f"{healthy.healthy(0.99):.0f} ms"),
            Figure("healthy beside p50", f"{mixed.healthy(0.5):.0f} ms"),
            Figure("healthy beside p99", f"{mixed.healthy(0.99):.0f} ms"),
            Figure("p99 beside to alone", f"{ratio:.2f}", "at most 1.3", ratio <= 1.3),
        ]
    )
    print(f"{DRAINED:,} records that all fail once, {DRAINED_DELAY} ms delay")
    told = f"{drained:.0f} ms after the last was due"
    return tell([Figure("drained", told, "within 3000 ms", drained <= 3000)]) and kept


class Seen:
    """What came of a run."""

    def __init__(self, lateness: list[int], early: int, latencies: list[float]) -> None:
        self._lateness = lateness
        self._latencies = latencies
        self.early = early

    def late(self, share: float) -> float:
        """The lateness that this share of parked records did not exceed."""
        return percentile(self._lateness, share)

    def healthy(self, share: float) -> float:
        """The latency that this share of those that did not fail did not exceed."""
        return percentile(self._latencies, share)


def _fails(number: int, failing: int) -> int:
    """Of `failing` records one fails, once, twice or three times."""
    return number // failing % 3 + 1 if failing and number % failing == 0 else 0


def _steady(world: World, name: str, *, failing: int, seconds: int) -> Seen:
    topic, out = world.topic(f"bench-{name}-in"), world.topic(f"bench-{name}-out")
    code = APP.format(name=f"bench-{name}", delays="1s 2s 4s", topic=topic, out=out)
    handle = _start(world, f"bench-{name}", code)
    first = _write(world, topic, range(RATE * SETTLING), failing)
    handle.figures.lateness.clear()
    _write(world, topic, range(RATE * SETTLING, RATE * (SETTLING + seconds)), failing)
    handle.wait_until(lambda: world.ends(out) == RATE * (SETTLING + seconds), 120)
    handle.stop()
    latencies = [
        float((record.timestamp or 0) - sent)
        for record in world.read(out)
        if record.value == b"0" and (sent := int(record.header("sent") or 0)) >= first
    ]
    return Seen(list(handle.figures.lateness), handle.figures.early, latencies)


def _start(world: World, name: str, code: str) -> Handle:
    target = world.app(name, code)
    handle = redrive.spark.start(world.spark, target, bootstrap=world.settings.servers())
    handle.wait_until(lambda: bool(handle.status("main")), 120)
    return handle


def _write(world: World, topic: str, numbers: range, failing: int) -> int:
    """Write at the rate; gives the time at which it ended."""
    at_rate(
        world.publisher.publish,
        [Write(topic, b"%d" % (n % 1000), b"%d" % _fails(n, failing)) for n in numbers],
        rate=RATE,
    )
    return world.now()


def _drain(world: World) -> float:
    topic, out = world.topic("bench-drain-in"), world.topic("bench-drain-out")
    code = APP.format(name="bench-drain", delays="2s", topic=topic, out=out)
    handle = _start(world, "bench-drain", code)
    # A run that is under way: both lanes have had something to do.
    world.publisher.publish([Write(topic, b"%d" % n, b"1") for n in range(RATE)])
    handle.wait_until(lambda: world.ends(out) == RATE, 120)
    world.publisher.publish([Write(topic, b"%d" % n, b"1") for n in range(DRAINED)])
    handle.wait_until(lambda: world.ends(out) == RATE + DRAINED, 120)
    handle.stop()
    parked = max(record.timestamp or 0 for record in world.read("bench-drain.retry.2s"))
    arrived = max(record.timestamp or 0 for record in world.read(out))
    return arrived - (parked + DRAINED_DELAY)
