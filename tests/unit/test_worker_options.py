"""Options of a worker: what programs give is checked as what commands give is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import ConfigurationError
from redrive.worker import Options


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


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(ConfigurationError) as caught:
        Options(until="never", max_in_flight=0, drain="soon")
    assert len(caught.value.problems) == 3
