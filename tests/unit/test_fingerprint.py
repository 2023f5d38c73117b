"""Fingerprints: the same for failures of one cause, and different for different ones."""

from __future__ import annotations

import json

import pytest

from redrive import Retry
from redrive.errors import Undecodable
from redrive.fingerprint import Fingerprint, error_name, fingerprint, grouped, pattern

HERE = __name__


def raised(function, *arguments):
    try:
        function(*arguments)
    except BaseException as error:
        return error
    pytest.fail("it raised nothing")


def price(order):
    return order["price"]


def handle(order):
    return price(order)


def bad_json(text):
    return json.loads(text)


def deeper(depth):
    if depth:
        deeper(depth - 1)
    raise ValueError("at the bottom")


def test_it_is_made_of_reason_class_and_own_frames():
    found = fingerprint(raised(handle, {}), "exhausted")
    own = (f"{HERE}:raised", f"{HERE}:handle", f"{HERE}:price")
    assert found == Fingerprint("exhausted", "KeyError", own)
    assert found.where == f"{HERE}:price < {HERE}:handle < {HERE}:raised"


def test_messages_do_not_matter_nor_do_lines():
    def one_line_or_another(number):
        if number:
            raise ValueError(f"order {number}")
        raise ValueError("none")

    assert fingerprint(raised(one_line_or_another, 7)) == fingerprint(
        raised(one_line_or_another, 0)
    )


def test_reason_class_and_place_do():
    error = raised(handle, {})
    assert fingerprint(error) != fingerprint(error, "exhausted")
    assert fingerprint(error) != fingerprint(raised(handle, 7))
    assert fingerprint(error) != fingerprint(raised(price, {}))


def test_frames_of_libraries_are_left_out():
    found = fingerprint(raised(bad_json, "{"))
    assert found.error == "json.decoder.JSONDecodeError"
    assert found.frames == (f"{HERE}:raised", f"{HERE}:bad_json")


def test_a_recursion_counts_once_however_deep_it_is():
    assert fingerprint(raised(deeper, 3)) == fingerprint(raised(deeper, 30))


def test_what_redrive_raises_about_a_function_has_the_frames_of_its_cause():
    error = Undecodable("cannot be decoded")
    error.__cause__ = raised(bad_json, "{")
    assert fingerprint(error).frames == (f"{HERE}:raised", f"{HERE}:bad_json")
    assert fingerprint(error).error == "redrive.errors.Undecodable"


def test_without_own_frames_there_are_none():
    assert fingerprint(Retry("a time-out has no trace")).frames == ()


def test_code_that_is_installed_is_its_owners_where_a_handler_is_in_it():
    code = compile(
        "def handle():\n    raise KeyError(1)", "/x/site-packages/shop/orders.py", "exec"
    )
    names = {"__name__": "shop.orders"}
    exec(code, names)  # noqa: S102 -- a module as if it were installed
    error = raised(names["handle"])
    assert fingerprint(error).frames == (f"{HERE}:raised",)
    assert fingerprint(error, own=frozenset(["shop.app"])).frames[-1] == "shop.orders:handle"


def test_a_group_is_named_by_its_members_each_once():
    assert error_name(ExceptionGroup("", [ValueError("a"), ValueError("b")])) == "ValueError"
    mixed = ExceptionGroup("", [ValueError("a"), KeyError("b")])
    assert error_name(mixed) == "ExceptionGroup(KeyError, ValueError)"


def test_a_group_in_groups_without_end_still_has_one():
    error: Exception = ValueError("innermost")
    for _ in range(3000):
        error = ExceptionGroup("group", [error])
    found = fingerprint(error, "exhausted")
    assert (found.error, found.frames) == ("ExceptionGroup", ())


def test_its_short_name_is_the_same_everywhere_and_for_ever():
    assert Fingerprint("exhausted", "KeyError", ("shop:handle",)).id == "149220fff1bec9e1"


def test_the_first_digit_of_its_id_is_the_version_of_how_it_is_made():
    ids = [Fingerprint("", f"Error{number}").id for number in range(50)]
    assert {each[0] for each in ids} == {"1"}
    assert {len(each) for each in ids} == {16}
    assert len(set(ids)) == 50


def test_a_reason_can_be_added_to_the_id_of_a_cause_that_is_known_by_nothing_else():
    cause, dead = (
        Fingerprint("", "KeyError", ("a:b",)),
        Fingerprint("expired", "KeyError", ("a:b",)),
    )
    assert grouped(cause.id, "expired") == dead.id != cause.id
    assert Fingerprint("expired", "KeyError", known=dead.id).id == dead.id


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("item 17 of order-4711 is missing", "item <n> of <id> is missing"),
        ("no price for 'Blue Shoes, 42'", "no price for <text>"),
        ('field "total" is -3.50, not above 0', "field <text> is <n>, not above <n>"),
        ("it isn't there, and that's it", "it isn't there, and that's it"),
        ("<Order at 0x7f3a9c>", "<Order at <id>>"),
        ("6f1c7a52-9f0e-4d7e-8a0b-3f6f2f1f9f00 timed out", "<id> timed out"),
        ("de305d54-75b4-431b-adb2-eb6b9e546014 gone", "<id> gone"),
        ("2025-07-01T12:08:16.789Z is past", "<id> is past"),
        ("127.0.0.1:5432 refused\n  after 3 tries", "<n> refused after <n> tries"),
        ("sha256 e3b0c442 differs", "<id> <id> differs"),
        ("", ""),
    ],
)
def test_messages_of_one_kind_have_one_pattern(message, found):
    assert pattern(message) == found
