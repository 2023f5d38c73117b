"""Manual acknowledgement: from any thread, in any order, early or late."""

from __future__ import annotations

from threading import Thread

import pytest

from redrive import App, ContextError, InPlace, Retry, RetryPolicy
from redrive.record import TopicPartition
from redrive.testing import Simulation


class Acks:
    """An app whose handler keeps its contexts, and the simulation it runs in."""

    def __init__(self, during=lambda ctx: None, *, is_async=False, app=None, **options):
        self.contexts = []
        app = app or App("items")

        def handle(record, ctx):
            self.contexts.append(ctx)
            ctx.send("done", record.value)
            during(ctx)

        async def handle_async(record, ctx):
            handle(record, ctx)

        app.handler("orders", ack="manual", **options)(handle_async if is_async else handle)
        self.sim = Simulation(app)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sim.close()

    def send(self, *values, keys="abc"):
        for number, value in enumerate(values):
            self.sim.send("orders", value, key=keys[number % len(keys)])
        self.sim.run()

    @property
    def committed(self):
        self.sim.run()
        place = TopicPartition("orders", 0)
        return self.sim.broker.progress("items").committed([place])[place].offset

    @property
    def done(self):
        return [record.value for record in self.sim.sent("done")]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_record_is_done_when_it_is_acknowledged_in_any_order(is_async):
    with Acks(is_async=is_async) as acks:
        acks.send("1", "2", "3")
        assert (acks.committed, acks.done) == (0, [])
        acks.contexts[2].ack()
        assert (acks.committed, acks.done) == (0, [b"3"])
        acks.contexts[0].ack()
        assert acks.committed == 1
        acks.contexts[1].ack()
        assert (acks.committed, acks.done) == (3, [b"3", b"1", b"2"])


def test_an_acknowledgement_may_come_from_another_thread():
    with Acks() as acks:
        acks.send("1", "2")
        threads = [Thread(target=ctx.ack) for ctx in acks.contexts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert acks.committed == 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("a negative amount", "the text 'a negative amount'"),
        (ValueError, "the class ValueError"),
        (None, "None"),
        ([], "a list"),
    ],
)
def test_what_fails_with_something_else_than_an_exception_has_failed(given, named):
    with Acks(lambda ctx: ctx.fail(given)) as acks:
        acks.send("1")
        [dead] = acks.sim.dead
        assert f"ctx.fail() was given {named}, not an exception" in dead.envelope.error_message
        assert (acks.committed, acks.done) == (1, [])


@pytest.mark.parametrize("is_async", [False, True])
def test_an_acknowledgement_may_come_before_the_handler_returns(is_async):
    with Acks(lambda ctx: ctx.ack(), is_async=is_async) as acks:
        acks.send("1", "2")
        assert (acks.committed, acks.done) == (2, [b"1", b"2"])


def test_the_next_of_a_key_waits_for_the_acknowledgement():
    with Acks() as acks:
        acks.send("1", "2", keys="a")
        assert len(acks.contexts) == 1
        acks.contexts[0].ack()
        acks.sim.run()
        assert len(acks.contexts) == 2


def test_a_failure_may_be_told_late_and_the_policy_decides():
    with Acks(retry=RetryPolicy("5m")) as acks:
        acks.send("1")
        acks.sim.advance("1m")
        acks.contexts[0].fail(Retry("not yet"))
        acks.sim.advance("5m")
        assert [each.after for each in acks.sim.attempts] == ["0s", "6m"]
        acks.contexts[1].ack()
        assert (acks.committed, acks.done, acks.sim.parked) == (1, [b"1"], [])


def test_a_failure_may_be_told_before_the_handler_returns():
    with Acks(lambda ctx: ctx.fail(RuntimeError("no"))) as acks:
        acks.send("1")
        assert ([dead.reason for dead in acks.sim.dead], acks.done) == (["exhausted"], [])


def test_what_a_manual_handler_raises_is_a_failure():
    def during(ctx):
        raise RuntimeError("no")

    with Acks(during) as acks:
        acks.send("1")
        assert [dead.reason for dead in acks.sim.dead] == ["exhausted"]


def test_the_first_word_counts():
    def during(ctx):
        ctx.ack()
        raise RuntimeError("after all is done")

    with Acks(during) as acks:
        acks.send("1")
        acks.contexts[0].fail(RuntimeError("no"))
        acks.contexts[0].ack()
        assert (acks.committed, acks.done, acks.sim.dead) == (1, [b"1"], [])


def test_what_is_not_acknowledged_in_time_has_failed():
    with Acks(timeout="30s", retry=RetryPolicy("5m")) as acks:
        acks.send("1")
        acks.sim.advance("29s")
        assert acks.sim.parked == []
        acks.sim.advance("1s")
        [parked] = acks.sim.parked
        assert parked.envelope.error_type == "redrive.errors.HandlerTimeout"
        assert "orders[0]@0 was not acknowledged within" in parked.envelope.error_message


def test_the_word_of_a_call_that_timed_out_does_not_decide_about_the_recovery():
    app = App("items")
    app.recover(lambda record, error, ctx: acks.contexts[0].ack())
    with Acks(app=app, timeout="30s") as acks:
        acks.send("1")
        acks.sim.advance("30s")
        acks.sim.run()
        assert ([dead.reason for dead in acks.sim.dead], acks.done) == (["exhausted"], [])


def test_an_acknowledgement_after_its_time_out_changes_nothing():
    with Acks(timeout="30s", retry=RetryPolicy(first=InPlace(2))) as acks:
        acks.send("1")
        acks.sim.advance("30s")
        acks.contexts[0].ack()
        acks.sim.advance("5s")
        assert len(acks.contexts) == 2
        assert (acks.committed, acks.done) == (0, [])  # the second call has not acknowledged yet
        acks.contexts[1].ack()
        assert (acks.committed, acks.done) == (1, [b"1"])


def test_without_a_time_out_it_waits_for_as_long_as_it_takes():
    with Acks() as acks:
        acks.send("1")
        acks.sim.advance("30d")
        assert acks.committed == 0
        acks.contexts[0].ack()
        assert acks.committed == 1


def test_what_was_not_acknowledged_runs_again_after_a_crash_and_late_words_do_not_count():
    with Acks() as acks:
        acks.send("1")
        acks.sim.crash()
        acks.contexts[0].ack()
        assert acks.committed == 0
        assert len(acks.contexts) == 2
        acks.contexts[1].ack()
        assert acks.committed == 1


def test_sending_after_the_acknowledgement_is_an_error():
    with Acks() as acks:
        acks.send("1")
        acks.contexts[0].ack()
        with pytest.raises(ContextError, match=r"before ctx.ack\(\)"):
            acks.contexts[0].send("late", b"v")


def test_sending_between_the_handlers_return_and_its_acknowledgement_is_fine():
    with Acks() as acks:
        acks.send("1")
        acks.contexts[0].send("done", b"later")
        acks.contexts[0].ack()
        acks.sim.run()
        assert acks.done == [b"1", b"later"]


@pytest.mark.parametrize("ordering", ["key", "partition", "unordered"])
def test_acknowledgements_of_every_ordering_are_committed(ordering):
    with Acks(app=App("items", ordering=ordering)) as acks:
        acks.send("1", "2", "3")
        for number in range(3):
            acks.contexts[number].ack()
            acks.sim.run()
        assert acks.committed == 3
