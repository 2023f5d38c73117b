"""The same app on both engines at once: one of them says what is the matter, and ends."""

from __future__ import annotations

import pytest
from running import OnSpark, OnWorker

from redrive.engines import preflight
from redrive.errors import NotReadyError

APP = """
    app = App(NAME, retry=RetryPolicy("1s"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value.decode())
"""


def test_a_worker_beside_a_spark_run_takes_over_and_spark_beside_it_is_refused(
    world, spark_session, monkeypatch
):
    # One that was stopped would be waited for; this one goes on.
    monkeypatch.setattr(preflight, "MEMBERS_GONE_WITHIN", 3.0)
    target = world.app(APP)
    on_spark = OnSpark(spark_session).start(target, world.bootstrap)
    worker = None
    try:
        world.send("in", b"1", b"2")
        world.wait(on_spark, "the work, on Spark", lambda: world.lag("in") == 0)
        worker = OnWorker().start(target, world.bootstrap)
        world.wait(worker, "its partitions", lambda: worker.worker.ready)
        with pytest.raises(Exception, match="is running as a worker: its group has active"):
            on_spark.handle.await_termination(60)
        world.send("in", b"3")
        world.wait(worker, "the work, on the worker", lambda: world.lag("in") == 0)
        with pytest.raises(NotReadyError, match="stop the worker first"):
            OnSpark(spark_session).start(target, world.bootstrap)
        worker.stop()
        assert sorted({note["value"] for note in world.notes()}) == ["1", "2", "3"]
    finally:
        on_spark.kill()
        if worker is not None:
            worker.kill()
