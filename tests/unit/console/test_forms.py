"""Filters and options as a page sends them mean what they mean in a command."""

from __future__ import annotations

import pytest

from redrive.console.forms import fields_of, filter_of, options_of, query_of
from redrive.dead import Filter
from redrive.errors import ConfigurationError


def test_fields_that_were_left_empty_are_left_out():
    assert fields_of("a=&b=+&c=1&c=2") == {"c": ["1", "2"]}


def test_an_edited_value_is_kept_as_it_is():
    assert fields_of("edited=+a%0A") == {"edited": [" a\n"]}
    assert fields_of("edited=") == {"edited": [""]}


def test_a_form_with_too_many_fields_is_refused():
    with pytest.raises(ConfigurationError, match="select fewer"):
        fields_of("&".join("at=x" for _ in range(3000)))


def test_a_filter_has_the_words_of_the_command():
    given = fields_of(
        "at=shop.dead[0]@1&group=14&dead_reason=exhausted&error=KeyError&text=no&key=k&id=7"
        "&header=a=b&origin=orders&newer=1s&older=2s&attempts=3&state=open"
    )
    assert filter_of(given, now=10_000) == Filter(
        places=("shop.dead[0]@1",),
        groups=("14",),
        reasons=("exhausted",),
        errors=("KeyError",),
        text="no",
        keys=("k",),
        ids=("7",),
        headers=("a=b",),
        origins=("orders",),
        since=9_000,
        until=8_000,
        attempts=3,
        states=("open",),
    )


@pytest.mark.parametrize(
    "query",
    [
        "attempts=many",
        "newer=yesterday",
        "at=nowhere",
        "state=lost",
        f"attempts={'9' * 5000}",
        f"newer={'9' * 5000}s",
        f"at=shop.dead[0]@{'9' * 5000}",
        f"at=shop.dead[{'9' * 5000}]@0",
    ],
)
def test_a_filter_that_cannot_be_read_is_a_sentence(query):
    with pytest.raises(ConfigurationError):
        filter_of(fields_of(query), now=0)


def test_a_fix_is_one_that_the_console_was_started_with():
    given = fields_of("fix=os:system")
    with pytest.raises(ConfigurationError, match="not among the fixes"):
        options_of(given, ["shop:fix"])
    assert options_of(fields_of("fix=shop:fix"), ["shop:fix"]).fix == "shop:fix"


def test_the_options_of_a_replay():
    options = options_of(fields_of("rate=5/s&ramp=1,10&stop_above=5%25&again=yes"), [])
    assert (options.rate, options.ramp, options.stop_above, options.again) == (
        5,
        (1, 10),
        0.05,
        True,
    )


def test_a_link_has_the_filter_and_nothing_else():
    assert query_of(fields_of("form_key=secret&group=a%26b&before=0:1"), before="0:5") == (
        "group=a%26b&before=0%3A5"
    )
