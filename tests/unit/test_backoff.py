"""`InPlace(...).call()`: the same retry as a plain object, for one record of a batch."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from redrive import App, Backoff, Bury, InPlace, Retry
from redrive.errors import ConfigurationError
from redrive.testing import Simulation

SOON = Backoff("1ms", cap="2ms")


class Flaky:
    """Fails so many times, then gives what it was given."""

    def __init__(self, failures, error=OSError):
        self.calls = 0
        self._failures = failures
        self._error = error

    def __call__(self, *given):
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error(f"failure {self.calls}")
        return given

    async def later(self, *given):
        return self(*given)


def call(form, policy, flaky, *given, **bounds):
    if form == "async":
        return asyncio.run(policy.call_async(flaky.later, *given, **bounds))
    return policy.call(flaky, *given, **bounds)


@pytest.fixture(params=["sync", "async"])
def form(request):
    return request.param


def test_it_is_called_until_it_works(form):
    flaky = Flaky(2)
    assert call(form, InPlace(attempts=3, backoff=SOON), flaky, 1, 2) == (1, 2)
    assert flaky.calls == 3


def test_the_last_error_is_raised_when_the_attempts_are_used_up(form):
    flaky = Flaky(9)
    with pytest.raises(OSError, match="failure 3"):
        call(form, InPlace(attempts=3, backoff=SOON), flaky)
    assert flaky.calls == 3


def test_what_can_never_be_handled_is_not_tried_again(form):
    flaky = Flaky(9, Bury)
    with pytest.raises(Bury):
        call(form, InPlace(attempts=3, backoff=SOON), flaky)
    assert flaky.calls == 1


def test_no_call_comes_later_than_was_said(form):
    flaky = Flaky(9)
    with pytest.raises(OSError, match="failure 1"):
        call(form, InPlace(attempts=None, backoff=Backoff("1h", cap="1h")), flaky, at_most="1m")


def test_a_wait_that_the_error_asks_for_counts_as_well(form):
    flaky = Flaky(9, lambda text: Retry(text, after="1h"))
    with pytest.raises(Retry, match="failure 1"):
        call(form, InPlace(attempts=3, backoff=SOON), flaky, at_most="1m")


def test_a_wait_ends_when_it_is_asked_to():
    stop = Event()
    stop.set()
    with pytest.raises(OSError, match="failure 1"):
        InPlace(attempts=None, backoff=Backoff("1h", cap="1h")).call(Flaky(9), stop=stop)


def test_for_ever_without_an_end_is_refused(form):
    with pytest.raises(ConfigurationError, match="at_most"):
        call(form, InPlace(attempts=None, backoff=SOON), Flaky(0))


def test_a_batch_handler_tries_one_of_its_records_by_itself():
    app = App("shop")
    flaky = Flaky(1)

    @app.handler("orders", batch=10)
    def handle(records, ctx):
        for record in records:
            try:
                InPlace(attempts=2, backoff=SOON).call(flaky, record.value)
            except OSError as error:
                ctx.fail(record, error)

    with Simulation(app) as sim:
        for number in range(3):
            sim.send("orders", f"{number}")
        sim.run_until_empty()
        assert flaky.calls == 4
        assert not sim.dead
