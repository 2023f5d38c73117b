from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import ConfigurationError
from redrive.durations import milliseconds, text

CENTURY = 36_500 * 86_400_000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("250ms", 250),
        ("5s", 5_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("1.5s", 1_500),
        ("0.1s", 100),
        ("0s", 0),
        (" 5S ", 5_000),
        (7, 7_000),
        (0.25, 250),
        (timedelta(minutes=1, milliseconds=1), 60_001),
    ],
)
def test_durations_are_read_as_people_write_them(written, expected):
    assert milliseconds(written) == expected


@pytest.mark.parametrize(
    "mistake",
    [
        "",
        "5",
        "s",
        "5 m",
        "5m,",
        "-5s",
        "5x",
        "1h 30m",
        "5mss",
        -1,
        float("nan"),
        float("inf"),
        timedelta(seconds=-1),
        True,
        None,
        b"5s",
        "36501d",
        "9" * 400 + "s",
        10**400,
    ],
)
def test_a_mistake_says_what_was_given_and_what_is_expected(mistake):
    with pytest.raises(ConfigurationError) as raised:
        milliseconds(mistake)
    assert repr(mistake) in str(raised.value)
    assert '"1h30m"' in str(raised.value)


@pytest.mark.parametrize(
    ("duration", "written"),
    [
        (0, "0s"),
        (1, "1ms"),
        (1_000, "1s"),
        (60_000, "1m"),
        (90_000, "1m30s"),
        (5_400_000, "1h30m"),
        (9_600_000, "2h40m"),
        (86_400_000, "1d"),
    ],
)
def test_topic_names_get_the_shortest_way_to_write_a_duration(duration, written):
    assert text(duration) == written


@given(st.integers(0, CENTURY))
def test_every_duration_survives_being_written_and_read(duration):
    assert milliseconds(text(duration)) == duration


@given(st.integers(0, CENTURY))
def test_one_duration_has_one_name(duration):
    assert text(milliseconds(f"{duration}ms")) == text(duration)
