from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Record, field, header, key
from redrive.ids import as_text, from_origin


def record(**given):
    data = given.pop("data", None)
    made = Record("orders", **given)
    made.data = data
    return made


def test_an_id_from_a_header_is_the_last_of_that_name():
    headers = (("id", b"old"), ("id", b"new"), ("other", b"x"))
    assert as_text(header("id")(record(headers=headers))) == "new"
    assert as_text(header("id")(record())) is None


@dataclass
class Order:
    id: int


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        ({"id": "7"}, "id", "7"),
        ({"id": 7}, "id", "7"),
        ({"id": 0}, "id", "0"),
        ({"order": {"id": 7}}, "order.id", "7"),
        ({"order": Order(7)}, "order.id", "7"),
        (SimpleNamespace(order={"id": "7"}), "order.id", "7"),
        ({"order": None}, "order.id", None),
        ({}, "order.id", None),
        ({"id": ""}, "id", None),
        (None, "id", None),
    ],
)
def test_an_id_from_a_field_looks_into_mappings_and_objects(data, path, expected):
    assert as_text(field(path)(record(data=data))) == expected


def test_an_id_can_be_the_key():
    assert as_text(key(record(key=b"7"))) == "7"
    assert as_text(key(record(key=None))) is None


def test_text_bytes_and_numbers_that_say_the_same_are_the_same_id():
    assert as_text("7") == as_text(b"7") == as_text(7) == "7"
    assert as_text("ü") == as_text("ü".encode()) == "ü"
    uuid = UUID(int=1)
    assert as_text(uuid) == as_text(str(uuid)) == "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize("binary", [b"\x00\x00\x00\x07", b"\xff\xfe", "a\x00b", "\ud800", "a\nb"])
def test_an_id_that_is_not_readable_text_can_still_be_a_header_and_a_database_key(binary):
    text = as_text(binary)
    assert text is not None
    assert text.isascii()
    assert text.isprintable()


@given(st.binary(min_size=4, max_size=6), st.binary(min_size=4, max_size=6))
def test_different_bytes_are_different_ids(one, other):
    assert (as_text(one) == as_text(other)) == (one == other)


def test_binary_ids_that_look_like_each_others_escapes_stay_apart():
    assert as_text(b"\xff\\xfe") != as_text(b"\\xff\xfe")


@given(st.text())
def test_text_and_its_bytes_are_the_same_id(text):
    assert as_text(text) == as_text(text.encode(errors="surrogatepass"))


@pytest.mark.parametrize("given", [1.5, True, ["7"], {"id": 7}, object()])
def test_anything_else_is_refused_with_what_was_given(given):
    with pytest.raises(TypeError, match="a message id must be a string, bytes or an integer"):
        as_text(given)


def test_a_recreated_topic_does_not_repeat_ids():
    assert from_origin("topic-a", 3, 17) == "topic-a/3/17"
    assert from_origin("topic-a", 3, 17) != from_origin("topic-b", 3, 17)


def test_of_what_no_index_takes_the_hash_is_the_id():
    long = "ü" * 501
    assert as_text("x" * 1000) == "x" * 1000
    assert as_text(long) == as_text(long.encode()) == f"sha256:{sha256(long.encode()).hexdigest()}"
    assert as_text(long) != as_text(long[1:] + "x")
