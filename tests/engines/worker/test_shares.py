"""Gauges of several workers of one app: each shows its share, and the sum is all of it."""

from __future__ import annotations

from running import gauges

WAITS = """
    app = App(NAME, concurrency=8, ordering="unordered", retry=RetryPolicy("1h"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        if record.value.startswith(b"late"):
            raise Retry("later")
        while not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)
"""


def both(runs, name, topic):
    return [gauges(run, name).get(topic, 0) for run in runs]


def lags(run):
    return run.worker.status("main")["ahead"]["lag"].values()


def test_the_sum_over_all_workers_is_what_is_ahead(world, start):
    target = world.app(WAITS, partitions=4)
    source, delayed = world.topic("in"), world.topic("retry.1h")
    world.send("in", *(b"late %d" % number for number in range(40)))
    run = start(target, until="once")
    assert run.worker.await_termination(60)
    runs = [start(target, instance=name) for name in ("one", "other")]
    for run in runs:
        world.wait(run, "its share", lambda run=run: run.worker.assigned >= 4)
    world.send("in", *(b"%d" % number for number in range(60)))
    world.wait(run, "all that is ahead", lambda: sum(both(runs, "lag_records", source)) == 60)
    world.wait(run, "what is parked", lambda: sum(both(runs, "parked_records", delayed)) == 40)
    for run in runs:  # whoever looks at one of them sees how far the app is
        world.wait(run, "all of it", lambda run=run: sum(lags(run)) == 60)
    (world.folder / "go").touch()
    world.wait(run, "it is done", lambda: sum(both(runs, "lag_records", source)) == 0)
    for run in runs:
        run.stop()
