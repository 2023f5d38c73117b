"""What holds for every policy, every record and every moment."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from redrive import Backoff, GiveBack, InPlace, Retry, RetryPolicy
from redrive.decisions import Again, Bury, Discard, Park, Return, Run, ToOrigin
from redrive.envelope import Envelope

NOW = 1_700_000_000_000
MS = st.integers(1, 7_200_000)
# Not so short that the longest `after` takes thousands of hops.
DELAYS = st.lists(st.integers(60_000, 7_200_000).map(lambda ms: ms / 1000), max_size=6)
BACKOFFS = st.builds(
    Backoff,
    MS.map(lambda ms: ms / 1000),
    factor=st.floats(1, 10),
    cap=MS.map(lambda ms: ms / 1000),
    jitter=st.floats(0, 1),
)
FIRSTS = (
    st.none()
    | st.builds(InPlace, st.integers(1, 5), BACKOFFS)
    | st.builds(GiveBack, st.integers(1, 5), BACKOFFS)
)
POLICIES = st.builds(
    RetryPolicy,
    DELAYS,
    first=FIRSTS,
    max_duration=st.none() | MS.map(lambda ms: ms / 1000),
    on_exhausted=st.sampled_from(["bury", "discard"]),
    age_from=st.sampled_from(["receipt", "record"]),
)
AFTERS = st.none() | MS.map(lambda ms: ms / 1000)
FRESH = Envelope(
    app="items",
    id="7",
    origin_topic="t",
    origin_partition=0,
    origin_offset=0,
    origin_timestamp=NOW - 60_000,
    first_received=NOW,
)


def born(policy):
    return NOW - 60_000 if policy.age_from == "record" else NOW


def life(policy, errors):
    """Every call of a record that always fails: when, and in which attempt and try."""
    envelope, now, tries = FRESH, NOW, 1
    for error in errors:
        yield now, envelope.attempt, tries
        decision = policy.decide(envelope, error, now, tries)
        assert decision == policy.decide(envelope, error, now, tries)  # of its arguments alone
        match decision:
            case Again(wait) | Return(wait):
                now, tries = now + wait, tries + 1
            case Park():
                now, envelope, tries = *waited(policy, envelope, decision, now), 1
            case Bury() | Discard():
                return
    raise AssertionError("it did not end")


def waited(policy, envelope, park, now):
    """Let a parked record hop until it may run; gives when, and its envelope."""
    asked = park.not_before
    while True:
        assert park.delay in policy.hops
        assert park.due >= now + park.delay  # never early
        assert park.not_before in (None, asked)
        now = park.due
        envelope = replace(envelope, attempt=park.attempt, due=park.due, not_before=park.not_before)
        release = policy.release(envelope, now, park.due, park.delay)
        if isinstance(release, Run | ToOrigin):
            return now, envelope
        assert isinstance(release, Park)
        assert release.attempt == envelope.attempt  # a hop counts no attempt
        park = release


@given(POLICIES, st.lists(AFTERS, min_size=1))
def test_every_record_that_keeps_failing_ends_within_its_sequence_and_its_time(policy, afters):
    errors = [Retry("no", after=after) for after in afters] + [Retry("no")] * 100
    calls = list(life(policy, errors))
    firsts = 1 if policy.first is None else policy.first.attempts
    assert len(calls) <= firsts + len(policy.delays)
    assert max(attempt for _, attempt, _ in calls) <= len(policy.delays) + 1
    times = [now for now, _, _ in calls]
    assert times == sorted(times)
    if policy.max_duration is not None:
        assert max(times[1:], default=0) <= born(policy) + policy.max_duration


@given(DELAYS.filter(bool), DELAYS, MS)
def test_after_is_never_early_and_at_most_one_smallest_delay_late(delays, extra, after):
    policy = RetryPolicy(delays, extra_delays=extra)
    decision = policy.decide(FRESH, Retry("no", after=after / 1000), NOW)
    assert isinstance(decision, Park)
    ran, envelope = waited(policy, FRESH, decision, NOW)
    assert after <= ran - NOW < after + policy.hops[0] or ran - NOW == policy.hops[0]
    assert envelope.attempt == 2


@given(DELAYS.filter(bool), MS, st.integers(0, 60_000))
def test_hops_that_come_late_do_not_add_up(delays, after, lateness):
    """Each hop is written a little late: what was lost is not waited for again."""
    policy = RetryPolicy(delays)
    now, envelope = NOW, FRESH
    decision = policy.decide(FRESH, Retry("no", after=after / 1000), now)
    while isinstance(decision, Park):
        now = decision.due + lateness
        envelope = replace(envelope, due=decision.due, not_before=decision.not_before)
        decision = policy.release(envelope, now, decision.due, decision.delay)
    assert after <= now - NOW < max(after, policy.hops[0]) + policy.hops[0] + lateness


@given(MS, st.integers(1, 50))
def test_every_tries_once_per_interval_until_the_end(interval, times):
    policy = RetryPolicy.every(interval / 1000, until=interval * times / 1000)
    calls = [now - NOW for now, _, _ in life(policy, [ValueError()] * 100)]
    assert calls == [interval * number for number in range(times + 1)]


@given(MS, st.floats(1, 5), MS, st.integers(1, 20))
def test_exponential_grows_by_its_factor_up_to_its_cap(initial, factor, cap, attempts):
    policy = RetryPolicy.exponential(
        initial / 1000, factor=factor, cap=cap / 1000, attempts=attempts
    )
    cap = max(cap, initial)
    assert len(policy.delays) == attempts - 1
    assert list(policy.delays) == sorted(policy.delays)
    for number, delay in enumerate(policy.delays):
        assert abs(delay - min(initial * factor**number, cap)) <= 1


@given(BACKOFFS, st.integers(1, 10**9), st.text())
def test_a_backoff_is_within_its_jitter_and_the_same_for_the_same_record(backoff, tries, seed):
    wait = backoff.wait(tries, seed)
    assert wait == backoff.wait(tries, seed)
    assert round(backoff.initial * (1 - backoff.jitter)) - 1 <= wait <= backoff.cap


def test_records_that_failed_together_do_not_come_back_together():
    backoff = Backoff("10s", jitter=0.5)
    assert len({backoff.wait(1, f"t/0/{offset}") for offset in range(100)}) > 90
