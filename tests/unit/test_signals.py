"""What handlers raise: rate limits as servers tell them."""

from __future__ import annotations

import pytest

from redrive import Retry

NOON = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT
YEAR = 365 * 86_400_000


@pytest.mark.parametrize(
    ("header", "milliseconds"),
    [
        ("120", 120_000),
        (" 0 ", 0),
        ("Wed, 21 Oct 2015 07:29:30 GMT", 90_000),
        ("Wednesday, 21-Oct-15 07:29:30 GMT", 90_000),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0),
        ("99999999999999", YEAR),
        ("Sat, 31 Dec 9999 23:59:59 GMT", YEAR),
        ("Thu, 01 Jan 2015 00:00:00 +9999999999", None),
        ("Thu, 01 Jan 2015 00:00:00 -99999999999999999999", None),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
    ],
)
def test_a_rate_limit_waits_as_long_as_its_header_says_and_counts_no_attempt(header, milliseconds):
    asked = Retry.after_header(header, now=NOON)
    assert asked.after == milliseconds
    assert asked.counts is False
