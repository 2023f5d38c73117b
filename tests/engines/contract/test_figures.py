"""Gauges of what is ahead, on every engine: what waits, what is due, and whose topics count."""

from __future__ import annotations

import sys

from running import gauges

WAITS = """
    app = App(NAME, retry=RetryPolicy("{delays}"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        if ctx.attempt == 1:
            raise Retry("later", after="1h" if record.value == b"long" else None)
        note(value=record.value.decode())
        while not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)
"""


def running_for(run, engine):
    """For how many seconds the oldest handler may have been running."""
    if engine.name == "spark":
        return gauges(run, "batch_age_seconds")["retry"]
    return gauges(run, "oldest_handler_seconds")[""]


def test_what_is_due_and_not_handled_is_counted_apart_from_what_only_waits(world, start, engine):
    target = world.app(WAITS.format(delays="1s 1h"), partitions=1)
    soon, late = world.topic("retry.1s"), world.topic("retry.1h")
    world.send("in", b"short", b"long")
    run = start(target)
    world.wait(run, "it is called again", lambda: len(world.notes()) == 1)
    world.wait(run, "it is due", lambda: gauges(run, "due_records")[soon] == 1)
    world.wait(run, "for a while", lambda: gauges(run, "due_age_seconds")[soon] > 0.1)
    world.wait(run, "its handler hangs", lambda: running_for(run, engine) > 0.1)
    assert gauges(run, "parked_records") == {soon: 1, late: 1}
    assert gauges(run, "due_records") == {soon: 1, late: 0}
    assert gauges(run, "due_age_seconds")[late] == 0
    assert gauges(run, "next_due_timestamp_seconds").keys() == {late}
    (world.folder / "go").touch()
    world.wait(run, "it is handled", lambda: gauges(run, "due_records")[soon] == 0)
    assert gauges(run, "due_age_seconds") == {soon: 0, late: 0}
    world.wait(run, "none runs", lambda: running_for(run, engine) == 0)
    assert gauges(run, "parked_records") == {soon: 0, late: 1}
    run.stop()


def test_records_in_delay_topics_that_no_policy_has_any_more_are_counted(world, start):
    target = world.app(WAITS.format(delays="1h"), partitions=1)
    world.send("in", b"long", b"long")
    run = start(target, until="once")
    assert run.handle.await_termination(60)
    del sys.modules[target.partition(":")[0]]
    world.app(WAITS.format(delays="5m"), partitions=1)
    run = start(target)
    wanted = {world.topic("retry.1h"): 2, world.topic("retry.5m"): 0}
    world.wait(run, "all that waits", lambda: gauges(run, "parked_records") == wanted)
    assert gauges(run, "due_records") == dict.fromkeys(wanted, 0)
    run.stop()
