"""Houses within tasks: what waits, what is freed by a commit, and what a late task may do."""

from __future__ import annotations

from time import monotonic

from memory_engine import MemoryTask, MiniSpark, WorkerDied, memory_runtime

from redrive import App, RetryPolicy
from redrive.engines.spark import slices, task
from redrive.engines.spark.slices import Slice
from redrive.processing.order import key_gate
from redrive.processing.progress.notes import CLAIM, noted
from redrive.record import TopicPartition, Write

SOURCE = TopicPartition("in", 0)


class Shop:
    """A mini Spark whose handler fails as often as a record's value says."""

    def __init__(self, **spec):
        self.handled = []
        self.on_call = lambda: None
        app = App("app", ordering="strict", concurrency=1, retry=RetryPolicy("5m 5m"))

        @app.handler("in")
        def handle(record, ctx):
            if record.key == b"deadly":
                raise WorkerDied
            if ctx.attempt <= int(record.value):
                raise ConnectionError("not now")
            self.handled.append((record.key, record.offset))
            self.on_call()

        self.spark = MiniSpark(app, horizon=0, **spec)
        self.planner = self.spark.planner()

    def send(self, *keys_and_failures):
        self.spark.broker.publish(
            [Write("in", key.encode(), b"%d" % fails, (), 0) for key, fails in keys_and_failures]
        )

    def run(self):
        """Run one batch, if there is something to do."""
        plan = self.planner.plan()
        self.spark.reports.clear()
        self.spark.run_batch(plan)
        return plan

    def claim(self):
        return noted(self.spark.progress.committed([SOURCE])[SOURCE], CLAIM)


def test_followers_wait_for_their_head_and_others_go_on():
    shop = Shop()
    shop.send(("a", 2), ("a", 0), ("b", 0))
    shop.run()
    shop.send(("a", 0), ("b", 0))
    shop.run()
    assert shop.handled == [(b"b", 2), (b"b", 4)]
    for _ in range(2):
        shop.spark.clock.advance("6m")
        shop.run()
    assert shop.handled[2:] == [(b"a", 0), (b"a", 1), (b"a", 3)]
    assert shop.planner.plan() == []
    assert shop.planner.status.empty


def test_what_only_waits_for_others_does_not_keep_its_task():
    shop = Shop(batch_deadline=3_600_000)
    shop.send(("a", 1), ("a", 0))
    shop.run()
    shop.run()  # else it would be there for an hour
    assert shop.planner.status.ahead.lag == {"in": 0, "app.retry.5m": 1, "app.retry.behind": 1}


def test_a_commit_frees_a_key_within_the_task():
    shop = Shop(commit_every=3_600_000)
    shop.send(("a", 1), ("a", 0))
    shop.run()
    shop.spark.clock.advance("6m")
    shop.run()
    assert shop.handled == [(b"a", 0), (b"a", 1)]


def test_a_key_is_not_free_before_the_end_of_its_head_is_committed(monkeypatch):
    """A worker that dies then runs the head again, and the follower after it."""
    shop = Shop()
    shop.send(("a", 1), ("a", 0))
    shop.run()
    shop.spark.clock.advance("6m")
    plan = shop.planner.plan()
    monkeypatch.setattr(Slice, "commit", lambda *_, **__: None)
    shop.spark.run_task(plan[0])
    assert shop.handled == [(b"a", 0)]


def test_records_that_are_put_off_are_read_again_in_the_same_task(monkeypatch):
    monkeypatch.setattr(key_gate, "FOLLOWERS_AT_HAND", 1)
    shop = Shop()
    shop.send(("a", 1), *[("a", 0)] * 20, ("b", 1), *[("b", 0)] * 20)
    shop.run()
    shop.spark.clock.advance("6m")
    shop.run()
    assert [offset for key, offset in shop.handled if key == b"a"] == list(range(21))
    assert [offset for key, offset in shop.handled if key == b"b"] == list(range(21, 42))


def test_what_waits_keeps_nobody_behind_it_however_little_time_a_task_has(monkeypatch):
    """Reading it takes longer than a batch may take."""
    monkeypatch.setattr(key_gate, "FOLLOWERS_AT_HAND", 4)
    monkeypatch.setattr(slices, "RANGE_WINDOW", 4)  # one record at a time
    shop = Shop(batch_deadline=10_000)
    shop.send(("a", 2), *[("a", 0)] * 30, ("b", 1), ("b", 0))
    shop.run()
    shop.spark.clock.advance("6m")
    away, read = [0.0], Slice.read

    def slow(self, wait=0):
        away[0] += 1
        return read(self, wait)

    monkeypatch.setattr(Slice, "read", slow)
    for module in (task, slices):
        monkeypatch.setattr(module, "monotonic", lambda: monotonic() + away[0])
    for _ in range(4):
        shop.spark.clock.advance("2s")
        shop.run()
    assert shop.handled == [(b"b", 31), (b"b", 32)]


def test_a_late_task_runs_nothing_and_leaves_what_is_committed():
    shop = Shop()
    shop.send(("a", 1), ("a", 0))
    late = shop.planner.plan()
    shop.planner = shop.spark.planner()  # Spark has given the job up
    shop.run()
    committed, rooms = shop.claim(), shop.spark.values("app.retry.behind")
    (report,) = shop.spark.run_task(late[0])
    assert "in[0] is handled by a later task" in report.trouble
    assert shop.handled == []
    assert (shop.claim(), shop.spark.values("app.retry.behind")) == (committed, rooms)


def test_a_task_that_was_suspended_while_a_later_one_ran_goes_on_with_nothing(monkeypatch):
    away = [0.0]
    monkeypatch.setattr(task, "monotonic", lambda: monotonic() + away[0])
    shop = Shop()
    shop.send(("b", 0), ("a", 1), ("a", 0))

    def others():
        shop.on_call = lambda: None
        shop.planner = shop.spark.planner()
        shop.run()
        away[0] = 3600.0

    shop.on_call = others
    first = shop.planner.plan()
    reports = shop.spark.run_task(first[0])
    assert "in[0] is handled by a later task" in reports[0].trouble
    assert len(shop.spark.values("app.retry.5m")) == 1
    assert len(shop.spark.values("app.retry.behind")) == 1
    assert shop.spark.committed(SOURCE).offset == 3


def test_a_task_that_was_suspended_runs_nothing_more_of_what_is_another_s(monkeypatch):
    away = [0.0]
    monkeypatch.setattr(task, "monotonic", lambda: monotonic() + away[0])
    monkeypatch.setattr(slices, "RANGE_WINDOW", 4)  # one record at a time
    shop = Shop(batch_deadline=3_600_000_000, commit_every=3_600_000)
    shop.send(("a", 0), ("a", 0), ("a", 0))

    def others():
        shop.on_call = lambda: None
        shop.planner = shop.spark.planner()
        shop.run()
        away[0] = 3600.0

    def first():  # after it there is a commit, which looks as well
        shop.on_call = others

    shop.on_call = first
    (report,) = shop.spark.run_task(shop.planner.plan()[0])
    assert "in[0] is handled by a later task" in report.trouble
    assert [offset for _, offset in shop.handled] == [0, 1, 1, 2]


def test_a_task_whose_house_is_another_s_commits_nothing():
    shop = Shop()
    shop.send(("a", 0), ("a", 0))

    def others():
        at = shop.spark.progress.committed([SOURCE])[SOURCE]
        shop.spark.progress.commit({SOURCE: at._replace(metadata="c1:later")})

    shop.on_call = others
    (report,) = shop.spark.run_task(shop.planner.plan()[0])
    assert "in[0] is handled by a later task" in report.trouble
    assert shop.spark.committed(SOURCE).offset == 0


def test_a_task_that_ends_by_an_error_waits_for_what_is_on_its_way(monkeypatch):
    """A copy that is durable only after the next task has read the rooms would be nobody's."""
    shop = Shop()
    hand_over, polls = shop.spark.broker.hand_over, []

    class Slow:
        def __init__(self, handed):
            at = shop.spark.progress.committed([SOURCE])[SOURCE]
            shop.spark.progress.commit({SOURCE: at._replace(metadata="c1:later")})

        @property
        def outstanding(self):
            return 0 if len(polls) >= 5 else 1

        def poll(self, seconds):
            polls.append(seconds)

        def error(self):
            return None

    monkeypatch.setattr(
        shop.spark.broker, "hand_over", lambda writes, **given: Slow(hand_over(writes, **given))
    )
    shop.send(("a", 1), ("b", 0))
    plan = shop.planner.plan()
    monkeypatch.setattr(task, "HOUSE_LOOK_EVERY", 0)
    (report,) = shop.spark.run_task(plan[0])
    assert "handled by a later task" in report.trouble
    assert len(polls) >= 5


def test_a_room_that_refuses_keeps_its_key_where_it_is_and_others_go_on():
    shop = Shop()
    shop.spark.broker.refuse("app.retry.behind")
    shop.send(("a", 1), ("a", 0), ("b", 0))
    shop.run()
    (source,) = (each for each in shop.spark.reports if each.topic == "in")
    assert (source.end, source.refused, shop.handled) == (1, 1, [(b"b", 2)])
    shop.spark.broker.accept("app.retry.behind")
    for _ in range(5):
        shop.spark.clock.advance("6m")
        shop.run()
    assert shop.handled == [(b"b", 2), (b"a", 0), (b"a", 1)]


def test_more_than_may_wait_behind_a_head_keep_their_partition():
    shop = Shop()
    shop.spark.app.max_behind = 2
    shop.send(("a", 1), ("a", 0), ("a", 0), ("b", 0))
    shop.run()
    (source,) = (each for each in shop.spark.reports if each.topic == "in")
    assert (source.end, shop.handled) == (2, [(b"b", 3)])
    for _ in range(5):
        shop.spark.clock.advance("6m")
        shop.run()
    assert shop.handled == [(b"b", 3), (b"a", 0), (b"a", 1), (b"a", 2)]


def test_a_record_that_kills_its_worker_is_buried_alone_however_late_that_can_be_written():
    shop = Shop()
    shop.spark.broker.refuse("app.dead")
    shop.send(("deadly", 0), *[(f"{number}", 0) for number in range(9)])
    for batches in (20, 40):
        for _ in range(batches):
            shop.spark.clock.advance("2s")
            shop.run()
        shop.spark.broker.accept("app.dead")
    assert [letter.key for letter in shop.spark.broker.records("app.dead")] == [b"deadly"]
    assert [offset for _, offset in shop.handled] == list(range(1, 10))


def test_rules_of_an_earlier_task_do_not_count_any_more():
    shop = Shop()
    shop.send(("a", 0))
    (ranges,) = shop.planner.plan()
    spark = shop.spark
    with memory_runtime(spark.app, spark.broker, spark.log, spark.clock) as runtime:
        runtime.scope.parked_rules = (object(),)
        MemoryTask(spark.spec, runtime).run(ranges)
        assert runtime.scope.parked_rules == ()
