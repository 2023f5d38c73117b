"""When failures are an outage, and what is let through until it is over: a pure function."""

from __future__ import annotations

import pytest

from redrive import Guard
from redrive.breaker import Breaker

CAUSE = "1234"


def breaker(concurrency=16, **options):
    return Breaker(Guard(**options), concurrency)


def fail(given, count, *, at=0, keys=None, cause=CAUSE, start=0):
    """So many failures, of different keys, each of its own record."""
    for number in range(start, start + count):
        key = number if keys is None else number % keys
        given.failed(f"record {number}", key, cause, at)


def opened(**options):
    given = breaker(**options)
    fail(given, 20)
    given.look(250, stalled=True)
    assert given.state == "open"
    return given


def probe(given, token, at, *, passes):
    assert given.may_begin(at) == 1
    given.begin(token)
    assert given.may_begin(at) == 0
    if passes:
        given.let_out_passed(token, at)
    else:
        given.failed(token, token, CAUSE, at)


def ramping(**options):
    given = opened(**options)
    for number in range(3):
        probe(given, f"probe {number}", 1250, passes=True)
    assert given.state == "ramp"
    return given


def test_twenty_failures_of_ten_keys_are_an_outage():
    given = breaker()
    fail(given, 20, keys=10)
    assert given.state == "suspect"
    given.look(249, stalled=False)
    assert given.state == "suspect"
    given.look(300, stalled=False)
    assert given.state == "open"
    assert (given.why.failures, given.why.keys, given.why.passed) == (20, 10, 0)


@pytest.mark.parametrize(("count", "keys"), [(19, 19), (500, 9), (500, 1)])
def test_fewer_failures_or_fewer_keys_are_none(count, keys):
    given = breaker()
    fail(given, count, keys=keys)
    for at in range(50, 30_000, 50):
        given.look(at, stalled=True)
        assert given.state != "open"


def test_failures_of_different_causes_are_not_added_up():
    given = breaker()
    fail(given, 19, cause="one")
    fail(given, 19, cause="two", start=100)
    given.look(250, stalled=False)
    assert given.state == "suspect"


def test_failures_are_added_up_within_the_window_only():
    given = breaker()
    for number in range(40):
        fail(given, 1, at=600 * number, start=number)
        given.look(600 * number, stalled=False)
        assert given.state == "suspect"


@pytest.mark.parametrize(("passing", "opens"), [(0, True), (1, True), (2, False), (20, False)])
def test_at_most_one_in_twenty_may_pass_during_an_outage(passing, opens):
    given = breaker()
    fail(given, 1)
    given.passed(passing, 0)
    fail(given, 19, start=1)
    given.look(500, stalled=False)
    assert (given.state == "open") is opens


def test_what_passed_before_the_outage_does_not_keep_it_closed():
    given = breaker()
    fail(given, 1)
    given.passed(100_000, 10)
    fail(given, 20, start=1, at=20)
    given.look(300, stalled=False)
    assert given.state == "open"


def test_a_failure_is_not_its_records_own_before_others_have_passed():
    given = breaker()
    assert given.failed("a", "a", CAUSE, 0) is True
    assert [*given.look(450, stalled=False).own] == []
    given.passed(1, 460)
    assert [*given.look(500, stalled=False).own] == ["a"]


def test_a_failure_is_its_records_own_if_nothing_more_is_to_be_seen():
    given = breaker()
    given.failed("a", "a", CAUSE, 0)
    assert [*given.look(200, stalled=True).own] == []
    assert [*given.look(250, stalled=True).own] == ["a"]


def test_where_only_a_few_failures_are_missing_all_are_called_once_more():
    """With ten lanes there are not twenty records that could fail."""
    given = breaker()
    fail(given, 10)
    looked = given.look(250, stalled=True)
    assert (len(looked.own), len(looked.again)) == (0, 10)
    fail(given, 10, at=250)
    given.look(500, stalled=True)
    assert given.state == "open"


def test_a_failure_is_its_records_own_when_the_window_is_over():
    given = breaker()
    given.failed("a", "a", CAUSE, 0)
    assert [*given.look(9_950, stalled=False).own] == []
    assert [*given.look(10_000, stalled=False).own] == ["a"]


def test_it_is_closed_again_once_nothing_is_left_of_the_window():
    given = breaker()
    given.failed("a", "a", CAUSE, 0)
    given.look(250, stalled=True)
    assert given.state == "suspect"
    given.look(10_050, stalled=True)
    assert given.state == "closed"


def test_one_probe_at_a_time_ever_more_rarely():
    given = opened()
    at = 250
    for number, wait in enumerate([1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]):
        assert given.may_begin(at + wait - 1) == 0
        assert given.next_look() == at + wait
        at += wait
        probe(given, f"probe {number}", at, passes=False)
    assert given.probes == {"failed": 7}


def test_the_first_probe_waits_as_long_as_the_handler_has_said():
    given = breaker()
    given.outage("a", "a", CAUSE, 0, 42_000)
    assert given.state == "open"
    assert given.next_look() == 42_000


def test_three_probes_in_a_row_start_the_ramp():
    given = opened()
    probe(given, "a", 1250, passes=True)
    probe(given, "b", 1250, passes=True)
    probe(given, "c", 1250, passes=False)
    probe(given, "d", given.next_look(), passes=True)
    probe(given, "e", given.next_look(), passes=True)
    assert given.state == "open"
    probe(given, "f", given.next_look(), passes=True)
    assert given.state == "ramp"


def test_the_ramp_widens_by_as_many_successes_as_may_run():
    given = ramping(concurrency=8)
    for limit in (1, 2, 4, 8):
        assert given.may_begin(2000) == limit
        for number in range(limit):
            given.begin(f"{limit}.{number}")
        assert given.may_begin(2000) == 0
        for number in range(limit):
            given.let_out_passed(f"{limit}.{number}", 2000)
    assert given.state == "closed"


def test_one_failure_sets_the_ramp_back_and_a_second_one_opens_it():
    given = ramping()
    for token in ("a", "b", "c"):
        given.begin(token)
        given.let_out_passed(token, 2000)
    assert given.may_begin(2000) == 4
    given.begin("d")
    given.begin("e")
    assert given.failed("d", "d", CAUSE, 2000) is True
    assert (given.state, given.may_begin(2000)) == ("ramp", 0)
    assert given.failed("e", "e", CAUSE, 2000) is True
    assert given.state == "open"
    assert given.next_look() == 3000


def test_a_record_that_fails_while_others_pass_fails_by_itself():
    given = ramping()
    given.begin("poison")
    assert given.failed("poison", "poison", CAUSE, 2000) is True
    for number in range(3):
        given.begin(number)
        given.let_out_passed(number, 2000)
    given.begin("poison")
    assert given.failed("poison", "poison", CAUSE, 2000) is False
    assert given.state == "ramp"


def test_what_began_before_it_opened_says_nothing_of_its_end():
    given = opened()
    given.let_out_passed("late", 500)
    given.let_out_passed("later", 500)
    given.let_out_passed("latest", 500)
    assert given.state == "open"
    assert given.failed("late too", "late too", CAUSE, 500) is True
    assert given.next_look() == 1250


def test_a_probe_that_was_not_called_is_none():
    given = opened()
    given.begin("a")
    given.let_out_ended("a", 1300)
    assert given.may_begin(1300) == 1
    assert given.probes == {}


def test_nothing_is_remembered_of_an_outage_that_is_over():
    given = ramping(concurrency=1)
    given.begin("a")
    given.let_out_passed("a", 2000)
    assert given.state == "closed"
    fail(given, 19, at=2000)
    given.look(2500, stalled=False)
    assert given.state == "suspect"


def test_what_passed_before_it_opened_again_makes_nobodys_failure_its_own():
    given = ramping()
    given.begin("a")
    assert given.failed("a", "a", CAUSE, 2000) is True
    for number in range(3):
        given.begin(number)
        given.let_out_passed(number, 2000)
    for token in ("b", "c"):
        given.begin(token)
        assert given.failed(token, token, CAUSE, 2000) is True
    assert given.state == "open"
    given.begin("a")
    assert given.failed("a", "a", CAUSE, 3000) is True


def test_a_call_that_began_before_it_opened_again_is_no_probe():
    given = ramping()
    for token in ("a", "b", "c"):
        given.begin(token)
        given.called(token, 2000)
        given.let_out_passed(token, 2000)
    for token in ("d", "e", "f"):
        given.begin(token)
        given.called(token, 2000)
    given.failed("d", "d", CAUSE, 2500)
    given.failed("e", "e", CAUSE, 2500)
    assert given.state == "open"
    assert given.failed("f", "f", CAUSE, 2600) is True
    assert given.probes == {"passed": 3}
    assert given.next_look() == 3500


def test_a_handler_can_hold_up_the_ramp_too_but_not_for_ever():
    given = ramping()
    given.begin("a")
    assert given.outage("a", "a", CAUSE, 2000, 42_000) is True
    assert given.may_begin(43_999) == 0
    assert given.may_begin(44_000) == 1
    other = opened()
    other.outage("late", "late", CAUSE, 300, 10**12)
    assert other.next_look() == 300 + 3_600_000
