"""Why records fail: each cause is said at once, with its trace, and then counted."""

from __future__ import annotations

import json
import logging

import pytest

from redrive import App, Backoff, Bury, InPlace, Retry, RetryPolicy, tuning
from redrive.engines.cause_log import CauseLog
from redrive.fingerprint import Fingerprint
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.outcomes.causes import Cause, Seen, Tally
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import CAUSES_TOLD_APART

HERE = __name__


def record(offset=0, topic="orders"):
    return Record(topic, 0, offset, b"k", b"v")


def error(text="no"):
    try:
        raise ValueError(text)  # noqa: TRY301 -- for its trace
    except ValueError as made:
        return made


@pytest.fixture
def app():
    app = App("shop", retry=RetryPolicy("5s"))
    app.handler("orders")(lambda record, ctx: None)
    return app


@pytest.fixture
def tally(app):
    return Tally(app)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def told(caplog, clock):
    caplog.set_level(logging.INFO, "redrive.causes")
    caplog.clear()
    return CauseLog("shop", clock)


def seen(count=1, kind="park", offset=0, **fingerprint):
    found = Fingerprint(
        **{"reason": "", "error": "KeyError", "frames": ("shop:handle",), **fingerprint}
    )
    return Seen(Cause(kind, "orders", found), count, 0, offset, "7", 2, "'price'", "Traceback: all")


# Counting


def test_failures_are_counted_by_cause(tally):
    for offset in range(3):
        tally.note("park", record(offset), None, error(f"order {offset}"))
    tally.note("bury", record(3), None, error(), "exhausted")
    parked, buried = tally.take()
    assert (parked.count, buried.count) == (3, 1)
    assert parked.cause == Cause(
        "park", "orders", Fingerprint("", "ValueError", (f"{HERE}:error",))
    )
    assert buried.cause.fingerprint.reason == "exhausted"
    assert parked.place == "orders[0]@0", "the first is the example"
    assert parked.message == "order 0"
    assert tally.take() == []


def test_what_is_reported_of_an_error_is_bounded_and_one_line(tally):
    tally.note("park", record(), None, error("x\n\x1b[2J" + "y" * 100_000))
    (found,) = tally.take()
    assert found.message.startswith("x\\n\\x1b[2Jyyy")
    assert len(found.message) < 600
    assert len(found.trace) < 9000


def test_causes_beyond_the_bound_are_counted_together(tally):
    for number in range(CAUSES_TOLD_APART + 10):
        tally.note("park", record(), None, type(f"Error{number}", (Exception,), {})())
    found = tally.take()
    assert len(found) == CAUSES_TOLD_APART + 1
    assert (found[-1].cause.fingerprint.error, found[-1].count) == ("(others)", 10)


def test_they_travel_as_json(tally):
    tally.note("bury", record(), None, error(), "exhausted")
    (found,) = tally.take()
    assert Seen.of(json.loads(json.dumps(found.as_dict()))) == found


# Which failures have a cause


def noted(policy, function, recover=None):
    """What is counted of one record, whose handler and recovery are these, within a second."""
    app = App("shop", retry=policy)
    app.handler("orders")(function)
    if recover is not None:
        app.recover("orders")(recover)
    clock = VirtualClock()
    scope = Scope(app, {}, clock=clock)
    tracker = AckTracker()
    processor = PartitionProcessor(scope, TopicPartition("orders", 0), tracker)

    def sink(_, report):
        for outcome in report.outcomes:
            scope.causes.outcome(outcome)

    dispatcher = Dispatcher(clock, 1, sink)
    executor = InlineExecutor(scope, Resources(app))
    executor.start(dispatcher)
    dispatcher.add(processor)
    dispatcher.offer(processor, [record()])
    executor.run()
    clock.advance(1000)
    dispatcher.tick()
    executor.run()
    executor.close()
    return scope.causes.take()


def kinds(seen):
    return [(each.cause.kind, each.cause.fingerprint.reason) for each in seen]


def failing(failure):
    def handle(record, ctx):
        raise failure

    return handle


def test_a_trace_begins_where_the_users_code_does():
    (found,) = noted(RetryPolicy("5s"), failing(ValueError("no")))
    first, second, *_ = found.trace.splitlines()
    assert first == "Traceback (most recent call last):"
    assert second.endswith("in handle")
    assert found.cause.fingerprint.frames == (f"{HERE}:failing.<locals>.handle",)


def test_parked_buried_discarded_and_tried_again_each_have_one():
    assert kinds(noted(RetryPolicy("5s"), failing(Retry("later")))) == [("park", "")]
    assert kinds(noted(RetryPolicy("5s"), failing(Bury("never")))) == [("bury", "rejected")]
    in_place = RetryPolicy(first=InPlace(2, Backoff("10ms", jitter=0)))
    found = kinds(noted(in_place, failing(ValueError("no"))))
    assert found == [("again", ""), ("bury", "exhausted")]
    discarding = RetryPolicy(on_exhausted="discard")
    assert kinds(noted(discarding, failing(ValueError("no")))) == [("discard", "exhausted")]
    assert noted(RetryPolicy(), lambda record, ctx: None) == []


def test_the_attempt_is_the_one_that_failed():
    (found,) = noted(RetryPolicy("5s"), failing(Retry("later")))
    assert found.attempt == 1


def test_a_recovery_that_fails_has_one():
    def recover(record, error, ctx):
        raise OSError("no")

    found = noted(RetryPolicy(), failing(ValueError("no")), recover)
    (again,) = [each for each in found if each.cause.kind == "again"]
    assert again.cause.fingerprint.error == "OSError"


# Saying


def test_a_new_cause_is_said_at_once_with_its_trace(told, caplog):
    told.add([seen()])
    (line,) = caplog.records
    found = Fingerprint("", "KeyError", ("shop:handle",))
    assert line.getMessage() == (
        "orders: a record was parked: KeyError: 'price' in shop:handle"
        f" (orders[0]@0, attempt 2, cause {found.id})"
    )
    assert line.levelno == logging.INFO
    assert "Traceback: all" in logging.Formatter().format(line)
    assert (line.app, line.topic, line.outcome, line.count) == ("shop", "orders", "park", 1)
    assert line.frames == ["shop:handle"]


def test_the_end_of_a_record_is_a_warning_with_its_reason(told, caplog):
    told.add([seen(2, "bury", reason="exhausted"), seen(1, "discard", reason="expired")])
    buried, discarded = caplog.records
    assert "orders: 2 records were buried (exhausted): KeyError" in buried.getMessage()
    assert "a record was discarded (expired)" in discarded.getMessage()
    assert buried.levelno == discarded.levelno == logging.WARNING


def test_after_that_it_is_summed_up_once_a_minute(told, caplog, clock):
    told.add([seen()])
    for offset in range(1, 1001):
        told.add([seen(2, offset=offset)])
    assert len(caplog.records) == 1
    clock.now += tuning.CAUSES_EVERY
    told.add([seen(1, offset=1001)])
    assert len(caplog.records) == 2
    line = caplog.records[1]
    assert line.getMessage().startswith(
        "orders: 2,001 more parked within 60 s, 2,002 in total: KeyError: 'price' in shop:handle"
        " (orders[0]@1001"
    )
    assert not line.exc_text
    clock.now += tuning.CAUSES_EVERY
    told.tick()
    assert len(caplog.records) == 2, "nothing new, nothing said"


def test_at_the_end_the_rest_is_said(told, caplog):
    told.add([seen()])
    told.add([seen()])
    told.sum_up()
    assert "1 more parked within 0 s, 2 in total" in caplog.text


def test_what_one_record_does_again_and_again_is_counted_in_times(told, caplog):
    for _ in range(3):
        told.add([seen(2, "hop", reason="no handler")])
    told.sum_up()
    said = "orders: left waiting (no handler) 4 times more within 0 s, 6 times in total: KeyError"
    assert caplog.messages[-1].startswith(said)


def test_a_record_that_was_not_tried_has_no_attempt(told, caplog):
    waiting = seen(1, "hop", reason="no handler")
    waiting.attempt = 0
    told.add([waiting])
    assert "(orders[0]@0, cause " in caplog.text


def test_a_cause_that_was_not_seen_for_long_is_new_again(told, caplog, clock):
    told.add([seen()])
    clock.now += tuning.CAUSES_FORGOTTEN_AFTER + 1
    told.tick()
    told.add([seen()])
    assert [line.getMessage()[:28] for line in caplog.records] == [
        "orders: a record was parked:"
    ] * 2


def test_so_many_causes_are_remembered_and_no_more(told, caplog):
    for number in range(tuning.MOST_CAUSES + 10):
        told.add([seen(error=f"Error{number}")])
    assert len(caplog.records) == tuning.MOST_CAUSES + 1
    assert "(others)" in caplog.records[-1].getMessage()
