"""Runs one after the other in one Spark session, whose Python workers live as long as it does."""

from __future__ import annotations

import privates

from redrive.engines.spark.slots import slots

VERSION = """
    app = App(NAME, retry=RetryPolicy("1s"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        threads = len(os.listdir("/proc/self/task"))
        note(version=VERSION, value=record.value.decode(), threads=threads, pid=os.getpid())
        ctx.send(topic("out"), record.value)
"""


def test_each_run_runs_the_app_as_it_is_and_leaves_nothing_behind(world, start):
    world.create(world.topic("out"))
    for version in range(4):
        # Edited within the same second, and to the same length.
        target = world.app(VERSION.replace("=VERSION", f"={version}"))
        run = start(target)
        values = [b"%d-%d" % (version, number) for number in range(50)]
        world.send("in", *values)
        world.wait(run, "the work", lambda: world.lag("in") == 0 and world.lag("retry.1s") == 0)
        run.stop()
    notes = world.notes()
    assert all(note["value"].startswith(f"{note['version']}-") for note in notes)
    assert {note["version"] for note in notes} == {0, 1, 2, 3}
    for pid in {note["pid"] for note in notes}:
        threads = {note["version"]: note["threads"] for note in notes if note["pid"] == pid}
        # Those of one run: ten or so for each of its clients.
        assert max(threads.values()) <= 1.5 * threads[min(threads)], threads


def test_the_slots_of_a_session_are_not_what_it_divides_shuffles_into(spark_session):
    context = spark_session.sparkContext
    there = context.defaultParallelism
    conf = privates.java_context(spark_session).conf()
    conf.set("spark.default.parallelism", "200")
    try:
        assert (context.defaultParallelism, slots(spark_session)) == (200, there)
    finally:
        conf.remove("spark.default.parallelism")
