"""Showing: nothing in a record is trusted."""

from __future__ import annotations

import json

import letters
import pytest

from redrive import App
from redrive.dead.letter import Letter
from redrive.dead.showing import Seen, plain_value, printable, value_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;gone\x07", "\\x1b]0;gone\\x07"),
        ("\x9b2J", "\\x9b2J"),  # the same as ESC [, in eight bits
        ("\r\x7f", "\\x0d\\x7f"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\u2066a\u2069", "\\u2066a\\u2069"),
        ("größer\n\tals", "größer\n\tals"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text, shown):
    assert printable(text) == shown


def test_of_a_long_message_the_beginning_tells_letters_apart():
    word = "aaaaaaaa " * 100_000
    given = (("kafka_dlt-exception-fqcn", b"E"), ("kafka_dlt-exception-message", word.encode()))
    seen = Seen(Letter(letters.foreign("dead", *given)))
    assert seen.message == word
    assert word.startswith(seen.pattern)
    assert 900 < len(seen.pattern) <= 1024


def test_a_value_that_is_nested_too_deeply_is_text():
    value = b"[" * 100_000
    assert plain_value(value).how == "text"
    record = letters.foreign("dead", *letters.CONNECT, value=value)
    app = App("shop", masked=["card"])
    app.handler("orders")(lambda record, ctx: None)
    assert value_of(Letter(record), app).how == "hidden"
    nested = b"[" * 900 + b"]" * 900
    assert plain_value(nested).how in {"json", "text"}


def test_what_a_decoder_says_may_quote_what_is_masked():
    app = App("shop", masked=["card"])

    def decode(value):
        raise ValueError(f"cannot read {value!r}")

    app.handler("orders", decode=decode)(lambda record, ctx: None)
    record = letters.foreign("dead", *letters.CONNECT, value=b'{"card": "4711"}')
    shown = value_of(Letter(record), app)
    assert (shown.how, "4711" in shown.problem) == ("json", False)
    assert json.loads(shown.text) == {"card": "***"}
    open_app = App("shop")
    open_app.handler("orders", decode=decode)(lambda record, ctx: None)
    assert "4711" in value_of(Letter(record), open_app).problem


def test_a_decoder_that_panics_is_said_and_ends_nothing():
    class Panic(BaseException):
        pass

    def decode(value):
        raise Panic("index out of bounds")

    app = App("shop")
    app.handler("orders", decode=decode)(lambda record, ctx: None)
    record = letters.foreign("dead", *letters.CONNECT, value=b"v")
    shown = value_of(Letter(record), app)
    assert (shown.how, shown.problem) == ("text", "Panic: index out of bounds")
