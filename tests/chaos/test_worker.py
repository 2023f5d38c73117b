"""The worker at full length: rolling restarts, twenty kills, a broker out of three."""

from __future__ import annotations

import os
import signal

import pytest
from crashing import SLOW, crash
from guarantees import CommittedIsComplete, EveryRecordProcessed, FewDuplicates, OrderKept
from processing import HANDLER, MANUAL, processing, rolling_restart
from running import FAILING_ONCE, OnWorker, World

from redrive.local import stack

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

COUNT = 10_000


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("source", [HANDLER, MANUAL], ids=["auto", "manual"])
def test_rolling_restarts_keep_every_guarantee(world, ordering, source):
    few = FewDuplicates(COUNT // 100)
    order = [] if ordering == "unordered" else [OrderKept(ordering)]
    pause = 0.004 if ordering == "partition" else 0.02
    with (
        processing(world, source.format(ordering=ordering, pause=pause)) as suite,
        CommittedIsComplete(world, "in") as committed,
    ):
        rolling_restart(suite, COUNT)
        suite.check(EveryRecordProcessed(), *order, few, committed)
    print(f"{few.count} of {COUNT} ran more than once; looked {committed.looks} times")


@pytest.mark.parametrize("number", range(20))
def test_a_kill_loses_nothing_and_repeats_little(world, number):
    with processing(world, SLOW) as suite:
        found = crash(suite, 20_000)
    print(f"kill {number}: {found}")
    assert found.lost == 0
    assert found.repeated <= 250
    # Well before the session time-out: it got its partitions because it came back by its name.
    assert found.works_again < 10


def test_killed_with_the_new_protocol_it_waits_for_its_name(world):
    """The broker thinks it in use until the session times out, which is the broker's to say."""
    with processing(world, SLOW, "--group-protocol", "consumer") as suite:
        found = crash(suite, 5_000)
        assert "still in use" in suite.runs[-1].output()
    print(found)
    assert found.lost == 0


@pytest.fixture(scope="module")
def three_brokers():
    with stack(3, ephemeral=True) as running:
        yield running


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_broker_out_of_three_is_killed(
    three_brokers, redrive_prefix, tmp_path, monkeypatch, delivery
):
    monkeypatch.syspath_prepend(str(tmp_path))
    # An orphaned transaction ends by its time-out, a minute.
    world = World(three_brokers.bootstrap, tmp_path, redrive_prefix, patience=120)
    options = f'delivery={delivery!r}, concurrency=8, retry=RetryPolicy("500ms")'
    target = world.app(FAILING_ONCE.format(options=options, seconds=0.005), partitions=6)
    world.create(world.topic("out"), 6)
    values = [b"%d" % number for number in range(6000)]
    world.send("in", *values)
    run = OnWorker().start(target, world.bootstrap)
    try:
        world.wait(run, "some of it", lambda: world.count("out") >= 600)
        three_brokers.brokers[0].kill()
        try:
            world.wait(run, "all of it", lambda: {*world.values("out")} == {*values}, timeout=240)
            world.wait(run, "progress", lambda: world.lag("in") == 0)
        finally:
            three_brokers.brokers[0].start()
        run.stop()
        assert world.values("dead") == []
        if delivery == "transaction":
            assert len(world.values("out")) == len(values)
    finally:
        run.kill()
        world.close()


def test_a_stop_does_not_wait_for_a_coordinator_that_is_silent(
    three_brokers, redrive_prefix, tmp_path, monkeypatch
):
    """The two other brokers answer."""
    monkeypatch.syspath_prepend(str(tmp_path))
    world = World(three_brokers.bootstrap, tmp_path, redrive_prefix)
    target = world.app(HANDLER.format(ordering="key", pause=0.05), partitions=6)
    world.send("in", *[b"%d" % number for number in range(500)])
    run = OnWorker().start(target, world.bootstrap, drain="1s")
    try:
        world.wait(run, "some of it", lambda: len(world.notes()) >= 20)
        found = world.admin.client.describe_consumer_groups([world.prefix])[world.prefix].result(30)
        (silent,) = (each for each in three_brokers.brokers if each.node == found.coordinator.id)
        os.kill(silent.pid, signal.SIGSTOP)
        try:
            run.worker.stop(30)  # a request is waited for 60 s
            assert run.worker.await_termination(0)
        finally:
            os.kill(silent.pid, signal.SIGCONT)
    finally:
        run.kill()
        world.close()
