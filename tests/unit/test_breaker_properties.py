"""Promises of a breaker, whatever happens to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive import Guard
from redrive.breaker import Breaker

KEYS = st.integers(0, 30)
STEP = st.integers(0, 400)
FEW = st.integers(0, 8)


@given(st.lists(st.tuples(FEW, STEP)), st.booleans())
def test_few_keys_never_open_it(failures, stalled):
    breaker = Breaker(Guard(), 4)
    now = 0
    for number, (key, step) in enumerate(failures):
        now += step
        breaker.failed(number, key, "cause", now)
        breaker.look(now, stalled=stalled)
        assert not breaker.is_shut


@given(st.lists(st.tuples(KEYS, STEP), min_size=1))
def test_no_failure_is_forgotten(failures):
    """Each is its record's own in the end, or there is an outage."""
    breaker = Breaker(Guard(), 4)
    now, held, own = 0, set(), []
    for number, (key, step) in enumerate(failures):
        now += step
        own += breaker.look(now, stalled=False).own
        if breaker.is_shut:
            return
        assert breaker.failed(number, key, "cause", now)
        held.add(number)
    for _ in range(300):
        now += 50
        own += breaker.look(now, stalled=False).own
        if breaker.is_shut:
            return
    assert sorted(own) == sorted(held)
    assert breaker.held == 0


@given(st.lists(st.sampled_from(["passes", "fails", "ends"]), max_size=200), st.integers(1, 20))
def test_no_more_run_at_once_than_the_ramp_allows(outcomes, concurrency):
    breaker = Breaker(Guard(), concurrency)
    breaker.outage("first", "first", "cause", 0, None)
    now, number, running = 0, 0, []
    passed, passed_in_a_row, widest = 0, 0, 1
    for outcome in outcomes:
        now = max(now, breaker.next_look() or now)
        while breaker.is_shut and breaker.may_begin(now) > 0:
            number += 1
            breaker.begin(number)
            running.append(number)
        if not breaker.is_shut:
            assert passed >= 3
            return
        assert len(running) <= widest
        token = running.pop(0)
        if outcome == "passes":
            breaker.let_out_passed(token, now)
            passed += 1
            passed_in_a_row += 1
            # Steps of 1, 2, 4 ... calls, as many of which have passed; one that fails sets it back.
            widest = max(widest, passed_in_a_row + 1)
        elif outcome == "fails":
            breaker.failed(token, token, "cause", now)
            passed_in_a_row = 0
        else:
            breaker.let_out_ended(token, now)


@given(st.integers(1, 64), st.integers(0, 40))
def test_an_outage_ends_however_long_it_was(concurrency, failed_probes):
    breaker = Breaker(Guard(), concurrency)
    breaker.outage("first", "first", "cause", 0, None)
    now, number = 0, 0
    while breaker.is_shut:
        now = max(now, breaker.next_look() or now)
        while breaker.is_shut and breaker.may_begin(now) > 0:
            number += 1
            breaker.begin(number)
            if number <= failed_probes:
                breaker.failed(number, number, "cause", now)
            else:
                breaker.let_out_passed(number, now)
    assert number <= failed_probes + 3 + 2 * concurrency


TOKENS = st.integers(0, 5)
OUTCOMES = st.sampled_from(["passes", "fails", "answers", "ends", "never"])


def let_out(breaker, token, outcome, now):
    """Let one out, and end it so; whether it has failed, and has to wait."""
    breaker.begin(token)
    breaker.called(token, now)
    if outcome == "fails":
        return breaker.failed(token, token, "cause", now)
    ends = {
        "passes": breaker.let_out_passed,
        "answers": breaker.let_out_answered,
        "ends": breaker.let_out_ended,
    }
    if outcome in ends:
        ends[outcome](token, now)
    return False


@given(st.lists(st.tuples(TOKENS, OUTCOMES, STEP), max_size=150), st.integers(1, 8))
def test_no_failure_is_a_records_own_unless_it_has_failed_twice_and_others_passed_between(
    calls, concurrency
):
    """Within one state: what was before it opened again, or the ramp began, tells nothing."""
    breaker = Breaker(Guard(), concurrency)
    breaker.outage("first", "first", "cause", 0, None)
    now, since, passed, failed = 0, (breaker.state, breaker.since), 0, {}
    for token, outcome, step in calls:
        now = max(now + step, breaker.next_look() or 0)
        if not breaker.is_shut:
            return
        if breaker.may_begin(now) == 0:
            continue
        if (breaker.state, breaker.since) != since:
            since, passed, failed = (breaker.state, breaker.since), 0, {}
        if token in breaker.begun():
            continue
        before = failed.get(token, passed)
        if let_out(breaker, token, outcome, now):
            failed.setdefault(token, passed)
        else:
            assert outcome != "fails" or passed - before >= 3
            if outcome in ("passes", "fails", "answers"):
                failed.pop(token, None)
        passed += outcome == "passes"


@given(st.lists(st.tuples(TOKENS, OUTCOMES, STEP), max_size=100), st.integers(1, 8))
def test_an_outage_ends_whatever_became_of_calls_during_it(calls, concurrency):
    breaker = Breaker(Guard(), concurrency)
    breaker.outage("first", "first", "cause", 0, None)
    now = 0
    for token, outcome, step in calls:
        now += step
        if breaker.is_shut and breaker.may_begin(now) and token not in breaker.begun():
            let_out(breaker, token, outcome, now)
    number = 1000
    while breaker.is_shut:
        following = breaker.next_look(now)
        if breaker.may_begin(now) == 0:
            assert following is not None
            now = following
            continue
        number += 1
        breaker.begin(number)
        breaker.called(number, now)
        breaker.let_out_passed(number, now)
        assert number < 1100
