"""The policy's decisions as a table, as DESIGN writes them."""

from __future__ import annotations

import pytest

from redrive import (
    Backoff,
    Bury,
    ConfigurationError,
    GiveBack,
    InPlace,
    Outage,
    Retry,
    RetryPolicy,
)
from redrive import policy as decided
from redrive.decisions import Again, Discard, Park, Return, Run, ToOrigin, Wait
from redrive.durations import milliseconds
from redrive.envelope import Envelope
from redrive.policy import causes

NOW = 1_700_000_000_000
EVEN = Backoff("1s", factor=2, cap="4s", jitter=0)
SEQUENCE = RetryPolicy("5m 5m 30m 30m 30m 1h")
SHORT = RetryPolicy("5s 30s")
ERROR = RuntimeError("no")


def envelope(attempt=1, age="0s", record_age=None, **more):
    """Of a record first received `age` ago, and written `record_age` ago."""
    born = None if record_age is None else NOW - milliseconds(record_age)
    return Envelope(
        app="items",
        id="7",
        origin_topic="item.update",
        origin_partition=0,
        origin_offset=17,
        origin_timestamp=born,
        first_received=NOW - milliseconds(age),
        attempt=attempt,
        **more,
    )


def park(delay, attempt, not_before=None):
    ms = milliseconds(delay)
    target = None if not_before is None else NOW + milliseconds(not_before)
    return Park(ms, NOW + ms, attempt, target)


def again(wait):
    return Again(milliseconds(wait))


def bury(reason):
    return decided.Bury(reason)


def after(duration):
    return Retry("rate limited", after=duration)


def uncounted(duration):
    return Retry("rate limited", after=duration, counts=False)


LIMITED = RetryPolicy("5s 30s", max_duration="10m")
LIMITED_IN_PLACE = RetryPolicy(first=InPlace(3, Backoff(0, jitter=0)), max_duration="10m")
IN_PLACE = RetryPolicy("5m", first=InPlace(3, EVEN))
FOR_EVER = RetryPolicy(first=InPlace(None, EVEN))
GIVE_BACK = RetryPolicy("5m", first=GiveBack(3, EVEN))
NINE_SECONDS = RetryPolicy(first=InPlace(None, EVEN), max_duration="9s")
EVERY = RetryPolicy.every("10s", until="1h")
GROWING = RetryPolicy.exponential("1s", factor=2, cap="1h", attempts=8)
YOUNG = RetryPolicy("5m 5m", max_duration="6m")
OF_RECORD = RetryPolicy("5m 5m", max_duration="6m", age_from="record")
DISCARDING = RetryPolicy("5m", on_exhausted="discard", bury_on=[ValueError])
PICKY = RetryPolicy("5m", bury_on=[ValueError])
CHOOSY = RetryPolicy("5m", retry_on=[ConnectionError])


@pytest.mark.parametrize(
    ("policy", "attempt", "tries", "error", "age", "decision"),
    [
        # blocking: try again in place with backoff, also for ever
        (IN_PLACE, 1, 1, ERROR, "0s", again("1s")),
        (IN_PLACE, 1, 2, ERROR, "1s", again("2s")),
        (IN_PLACE, 1, 3, ERROR, "3s", park("5m", 2)),
        (IN_PLACE, 2, 1, ERROR, "5m", bury("exhausted")),
        (FOR_EVER, 1, 1, ERROR, "0s", again("1s")),
        (FOR_EVER, 1, 1_000_000, ERROR, "30d", again("4s")),
        # stateful: give the record back and read it again
        (GIVE_BACK, 1, 1, ERROR, "0s", Return(1_000)),
        (GIVE_BACK, 1, 2, ERROR, "1s", Return(2_000)),
        (GIVE_BACK, 1, 3, ERROR, "3s", park("5m", 2)),
        # a retry topic, try every interval until a maximum age
        (EVERY, 1, 1, ERROR, "0s", park("10s", 2)),
        (EVERY, 200, 1, ERROR, "33m", park("10s", 201)),
        (EVERY, 360, 1, ERROR, "59m50s", park("10s", 361)),
        (EVERY, 361, 1, ERROR, "1h", bury("expired")),
        (EVERY, 2, 1, ERROR, "59m51s", bury("expired")),
        # a retry sequence over delay topics, then the failed topic
        (SEQUENCE, 1, 1, ERROR, "0s", park("5m", 2)),
        (SEQUENCE, 2, 1, ERROR, "5m", park("5m", 3)),
        (SEQUENCE, 3, 1, ERROR, "10m", park("30m", 4)),
        (SEQUENCE, 5, 1, ERROR, "1h10m", park("30m", 6)),
        (SEQUENCE, 6, 1, ERROR, "1h40m", park("1h", 7)),
        (SEQUENCE, 7, 1, ERROR, "2h40m", bury("exhausted")),
        (RetryPolicy(), 1, 1, ERROR, "0s", bury("exhausted")),
        # exponential
        (GROWING, 1, 1, ERROR, "0s", park("1s", 2)),
        (GROWING, 2, 1, ERROR, "1s", park("2s", 3)),
        (GROWING, 7, 1, ERROR, "63s", park("64s", 8)),
        (GROWING, 8, 1, ERROR, "127s", bury("exhausted")),
        # the handler knows better
        (SHORT, 1, 1, after("37s"), "0s", park("30s", 2, not_before="37s")),
        (SHORT, 1, 1, after("30s"), "0s", park("30s", 2)),
        (SHORT, 1, 1, after("2s"), "0s", park("5s", 2)),
        (SHORT, 2, 1, after("1h"), "5s", park("30s", 3, not_before="1h")),
        (SHORT, 3, 1, after("37s"), "35s", bury("exhausted")),
        (SHORT, 1, 1, Retry("no time said"), "0s", park("5s", 2)),
        (IN_PLACE, 1, 1, after("2m"), "0s", park("5m", 2)),
        (FOR_EVER, 1, 1, after("37s"), "0s", again("37s")),
        (RetryPolicy("30s", extra_delays="1s"), 1, 1, after("2s"), "0s", park("1s", 2, "2s")),
        (RetryPolicy("30s", extra_delays="1s"), 1, 1, ERROR, "0s", park("30s", 2)),
        # a rate limit is no attempt, until the record is too old; without an end to it, it is one
        (LIMITED, 1, 1, uncounted("37s"), "0s", park("30s", 1, not_before="37s")),
        (LIMITED, 3, 1, uncounted("30s"), "35s", park("30s", 3)),
        (LIMITED, 3, 1, uncounted(None), "35s", park("30s", 3)),
        (LIMITED, 1, 1, uncounted("30s"), "9m31s", bury("expired")),
        (SHORT, 1, 1, uncounted("30s"), "0s", park("30s", 2)),
        (SHORT, 3, 1, uncounted("30s"), "0s", bury("exhausted")),
        (LIMITED_IN_PLACE, 1, 3, uncounted("0s"), "0s", Again(1000, counts=False)),
        (LIMITED_IN_PLACE, 1, 3, uncounted("37s"), "0s", Again(37_000, counts=False)),
        (LIMITED_IN_PLACE, 1, 3, uncounted("37s"), "10m", bury("expired")),
        # an outage that no guard was asked about is an error that is retried
        (CHOOSY, 1, 1, Outage("away"), "0s", park("5m", 2)),
        (SHORT, 1, 1, Outage("away", retry_after="30s"), "0s", park("30s", 2)),
        # never retry these, always retry those
        (PICKY, 1, 1, ValueError(), "0s", bury("not-retryable")),
        (PICKY, 1, 1, UnicodeError(), "0s", bury("not-retryable")),
        (PICKY, 1, 1, ERROR, "0s", park("5m", 2)),
        (CHOOSY, 1, 1, ERROR, "0s", bury("not-retryable")),
        (CHOOSY, 1, 1, ConnectionResetError(), "0s", park("5m", 2)),
        (CHOOSY, 1, 1, Retry("not yet"), "0s", park("5m", 2)),
        (SEQUENCE, 1, 1, Bury("never"), "0s", bury("rejected")),
        (FOR_EVER, 1, 1, Bury("never"), "0s", bury("rejected")),
        # max_duration used up, it is buried: what cannot run in time is not parked
        (YOUNG, 1, 1, ERROR, "0s", park("5m", 2)),
        (YOUNG, 1, 1, ERROR, "1m", park("5m", 2)),
        (YOUNG, 1, 1, ERROR, "1m1ms", bury("expired")),
        (YOUNG, 1, 1, after("5m30s"), "0s", bury("expired")),  # it would run at 10m
        (NINE_SECONDS, 1, 9, ERROR, "8s", bury("expired")),
        # nothing is dropped silently
        (DISCARDING, 2, 1, ERROR, "5m", Discard("exhausted")),
        (DISCARDING, 1, 1, ValueError(), "0s", bury("not-retryable")),
        (DISCARDING, 1, 1, Bury("never"), "0s", bury("rejected")),
    ],
)  # fmt: skip
def test_what_becomes_of_a_record_that_failed(policy, attempt, tries, error, age, decision):  # noqa: PLR0917 -- the columns of the table
    assert policy.decide(envelope(attempt, age), error, NOW, tries) == decision


@pytest.mark.parametrize(
    ("policy", "record_age", "decision"),
    [
        (YOUNG, "1d", park("5m", 2)),
        (OF_RECORD, "1m", park("5m", 2)),
        (OF_RECORD, "2m", bury("expired")),
        (OF_RECORD, None, park("5m", 2)),  # without a timestamp, its receipt counts
    ],
)
def test_age_counts_from_receipt_or_from_the_records_own_timestamp(policy, record_age, decision):
    assert policy.decide(envelope(record_age=record_age), ERROR, NOW) == decision


BACK = RetryPolicy("5s 30s", redeliver="origin", max_duration="1m")


@pytest.mark.parametrize(
    ("policy", "known", "due_in", "release"),
    [
        (SHORT, envelope(2), 0, Run()),
        (SHORT, envelope(2), 1, Wait(NOW + 1)),
        (SHORT, envelope(2, not_before=NOW + 7_000), 0, park("5s", 2, not_before="7s")),
        (SHORT, envelope(2, not_before=NOW + 2_000), 0, park("5s", 2)),
        (SHORT, envelope(2, not_before=NOW), 0, Run()),
        (SHORT, envelope(2, "100d"), 0, Run()),
        (BACK, envelope(2), 0, ToOrigin()),
        (BACK, envelope(2), 1, Wait(NOW + 1)),
        (BACK, envelope(2, "1m"), 0, ToOrigin()),
        (BACK, envelope(2, "1m1ms"), 0, bury("expired")),
        (BACK, envelope(2, "1m1ms"), 1, bury("expired")),  # expiry is checked before due time
        (BACK, envelope(2, dead_reason="exhausted"), 0, Run()),
        (BACK, envelope(2, "2m", dead_reason="exhausted"), 0, Run()),  # it waits for its recovery
        (BACK, envelope(2, "2m", dead_reason="exhausted"), 1, Wait(NOW + 1)),
    ],
)  # fmt: skip
def test_what_becomes_of_a_record_that_has_waited(policy, known, due_in, release):
    assert policy.release(known, NOW, NOW + due_in, 5_000) == release


def test_a_policy_without_delays_lets_nobody_run_early_who_waits_from_before():
    known = envelope(2, not_before=NOW + 7_000)
    assert RetryPolicy().release(known, NOW, NOW, 5_000) == Park(5_000, NOW + 5_000, 2, NOW + 7_000)
    known = envelope(2, not_before=NOW + 4_000)
    assert RetryPolicy().release(known, NOW, NOW, 5_000) == Park(5_000, NOW + 5_000, 2)
    assert RetryPolicy().release(known, NOW + 4_000, NOW, 5_000) == Run()


def test_a_recovery_that_failed_waits_in_the_shortest_delay_and_keeps_its_count():
    assert SHORT.recover_later(envelope(3), NOW) == park("5s", 3)
    assert RetryPolicy().recover_later(envelope(3), NOW) is None


def test_only_what_was_retried_enough_may_be_discarded():
    assert DISCARDING.ending("exhausted") == Discard("exhausted")
    assert DISCARDING.ending("expired") == Discard("expired")
    assert DISCARDING.ending("not-retryable") == bury("not-retryable")
    assert PICKY.ending("exhausted") == bury("exhausted")


# Causes


def explicit():
    error = RuntimeError()
    error.__cause__ = ValueError()
    return error


def implicit():
    error = RuntimeError()
    error.__context__ = ValueError()
    return error


def suppressed():
    error = implicit()
    error.__suppress_context__ = True
    return error


def circular():
    error, other = RuntimeError(), ValueError()
    error.__cause__, other.__cause__ = other, error
    return error


def grouped():
    return ExceptionGroup("all", [RuntimeError(), ExceptionGroup("some", [explicit()])])


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ValueError(), True),
        (explicit(), True),
        (implicit(), True),
        (suppressed(), False),
        (circular(), True),
        (grouped(), True),
        (RuntimeError(), False),
    ],
    ids=["itself", "cause", "context", "from None", "cycle", "group", "none"],
)
def test_causes_are_searched(error, found):
    buries = RetryPolicy("5m", bury_on=[ValueError]).decide(envelope(), error, NOW)
    assert buries == (bury("not-retryable") if found else park("5m", 2))
    retries = RetryPolicy("5m", retry_on=[ValueError]).decide(envelope(), error, NOW)
    assert retries == (park("5m", 2) if found else bury("not-retryable"))
    each = list(causes(error))
    assert len({id(cause) for cause in each}) == len(each)


def test_bury_on_beats_retry_on():
    policy = RetryPolicy("5m", retry_on=[OSError], bury_on=[ConnectionError])
    assert policy.decide(envelope(), OSError(), NOW) == park("5m", 2)
    assert policy.decide(envelope(), ConnectionResetError(), NOW) == bury("not-retryable")


def test_a_handler_that_answers_an_error_with_retry_is_believed():
    error = Retry("not in the cache yet")
    error.__context__ = KeyError("7")  # except KeyError: raise Retry(...)
    policy = RetryPolicy("5m", bury_on=[KeyError])
    assert policy.decide(envelope(), error, NOW) == park("5m", 2)


# Mistakes


def test_all_mistakes_of_a_policy_are_reported_at_once():
    with pytest.raises(ConfigurationError) as raised:
        RetryPolicy(
            "5m 5x 0s",
            repeat=True,
            first=3,
            extra_delays=[-1],
            retry_on=[KeyError],
            bury_on=[KeyError, "ValueError"],
            age_from="birth",
            on_exhausted="drop",
            redeliver="home",
        )
    assert all(problem.startswith("RetryPolicy: ") for problem in raised.value.problems)
    told = "\n".join(raised.value.problems)
    for problem in (
        "delays: '5x' is not a duration",
        "delays: a delay of 0 would retry in a busy loop",
        "repeat=True needs max_duration",
        "first is 3; it can be InPlace(...) or GiveBack(...)",
        "extra_delays: -1 is not a duration",
        "KeyError is in both retry_on and bury_on",
        "bury_on: 'ValueError' is not an exception class",
        "age_from is 'birth'; it can be 'receipt' or 'record'",
        "on_exhausted is 'drop'; it can be 'bury' or 'discard'",
        "redeliver is 'home'; it can be 'handler' or 'origin'",
    ):
        assert problem in told
    assert len(raised.value.problems) == 10


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: RetryPolicy(repeat=True, max_duration="1h"), "at least one delay to repeat"),
        (lambda: RetryPolicy(extra_delays="1s"), "extra_delays alone need max_duration"),
        (lambda: RetryPolicy(redeliver="origin"), 'redeliver="origin" needs delays'),
        (lambda: RetryPolicy(300), "delays is 300; write a string"),
        (lambda: RetryPolicy("5m", bury_on=ValueError), r"write a list: bury_on=\[ValueError\]"),
        (lambda: RetryPolicy("5m", max_duration="long"), "max_duration: 'long' is not a duration"),
        (lambda: RetryPolicy.every("0s", until="1h"), "a delay of 0 would retry in a busy loop"),
        (lambda: RetryPolicy.exponential("1s", attempts=0), "at least 1"),
        (lambda: RetryPolicy.exponential("1s", factor=0.5, attempts=3), "factor is 0.5"),
        (lambda: InPlace(0), "InPlace: attempts is 0"),
        (lambda: InPlace(2, "10ms"), r"InPlace: backoff is '10ms'; write Backoff\('10ms'\)"),
        (lambda: GiveBack(2, 5), "GiveBack: backoff is 5"),
        (lambda: GiveBack(-1), "GiveBack: attempts is -1"),
        (lambda: InPlace(None, Backoff(0)), "retrying forever without a wait is a busy loop"),
        (lambda: Backoff("1s", factor=float("nan")), "factor is nan"),
        (lambda: Backoff("1s", jitter=2), "jitter is 2"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(make, problem):
    with pytest.raises(ConfigurationError, match=problem):
        make()


def test_all_mistakes_of_a_backoff_are_reported_at_once():
    with pytest.raises(ConfigurationError) as raised:
        Backoff("soon", factor=0, cap="late", jitter=-1)
    assert len(raised.value.problems) == 4


def test_what_a_policy_is_can_be_read():
    assert repr(RetryPolicy("5m", bury_on=[ValueError])).startswith("RetryPolicy(delays=(300000,)")
    assert RetryPolicy("5m") == RetryPolicy(["300s"]) == RetryPolicy([300])
    assert hash(RetryPolicy("5m")) == hash(RetryPolicy("5m"))
