"""Options of a worker: what programs give is checked as what commands give is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import App, ConfigurationError
from redrive.config import load_settings
from redrive.engines.worker.options import check_revoke_wait
from redrive.worker import Options, start


def test_times_are_durations_as_everywhere():
    options = Options(drain="1m30s", revoke_wait=timedelta(seconds=2))
    assert (options.drain_seconds, options.revoke_seconds) == (90, 2)
    assert Options(drain=0.5).drain_seconds == 0.5


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"until": "emtpy"}, "until is 'emtpy'; it must be 'stopped' or 'once' or 'empty'"),
        ({"start_from": "end"}, "start_from is 'end'; it must be 'earliest' or 'latest'"),
        ({"protocol": "new"}, "protocol is 'new'; it must be 'classic' or 'consumer'"),
        ({"max_in_flight": 0}, "max_in_flight is 0; it must be at least 1, or nothing is read"),
        ({"max_bytes_in_flight": -1}, "max_bytes_in_flight is -1"),
        ({"drain": "soon"}, "drain: 'soon' is not a duration"),
        ({"revoke_wait": -1}, "revoke_wait: -1 is not a duration"),
        ({"instance": "me", "dynamic": True}, "a dynamic member has no name"),
    ],
)
def test_a_mistake_says_what_to_write(given, sentence):
    with pytest.raises(ConfigurationError) as caught:
        Options(**given)
    assert sentence in str(caught.value)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("wait", "librdkafka"),
    [
        ("5m", {}),
        ("10s", {"max.poll.interval.ms": "10000"}),
        ("7s", {"max.poll.interval.ms": 6000}),
    ],
)
def test_a_wait_in_which_the_group_would_throw_the_worker_out_is_refused(wait, librdkafka):
    settings = load_settings({"librdkafka": librdkafka}, environ={})
    with pytest.raises(ConfigurationError, match=r"does not poll while it waits"):
        check_revoke_wait(Options(revoke_wait=wait), settings)
    check_revoke_wait(Options(revoke_wait="5s"), settings)


def test_a_poll_interval_that_is_no_number_is_said():
    settings = load_settings({"librdkafka": {"max.poll.interval.ms": "5m"}}, environ={})
    with pytest.raises(ConfigurationError, match=r"interval\.ms under librdkafka is '5m'"):
        check_revoke_wait(Options(), settings)


def test_a_worker_does_not_start_with_such_a_wait():
    app = App("shop")
    app.handler("orders")(print)
    with pytest.raises(ConfigurationError, match=r"revoke_wait is 6m, but max\.poll\.interval\.ms"):
        start(app, options=Options(revoke_wait="6m"), bootstrap="localhost:1")


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(ConfigurationError) as caught:
        Options(until="never", max_in_flight=0, drain="soon")
    assert len(caught.value.problems) == 3
