"""Fixes: what they return is a value, or a sentence."""

from __future__ import annotations

import json
import math
from threading import Event

import letters
import pytest

from redrive import App
from redrive.dead import Filter
from redrive.dead.fixing import FixError, difference, editable, fixed
from redrive.dead.letter import Letter
from redrive.dead.operator import ReplayOptions
from redrive.errors import HandlerTimeout
from redrive.record import Record

LETTER = Letter(letters.foreign("dead", value=b"v"))


def returning(made):
    def fix(record):
        return made

    return fix


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (b"\xff", b"\xff"),
        ("größer", "größer".encode()),
        ({"a": [1, 2.5, None]}, b'{"a":[1,2.5,null]}'),
        (True, b"true"),
        ("", b""),
    ],
)
def test_bytes_text_and_data_are_values(made, value):
    assert fixed(returning(made), LETTER) == value


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "it returned nothing: return the new value"),
        (object(), "it returned a object: return the new value"),
        (LETTER.record, "it returned a Record"),
        ({"a": object()}, "not JSON serializable"),
        ({"a": math.nan}, "not JSON compliant"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_nonsense_is_said_of_the_letter_it_was_made_of(made, said):
    with pytest.raises(FixError, match=rf"failed for dead\[0\]@0 \(.*{said}"):
        fixed(returning(made), LETTER)


def test_a_fix_that_makes_nonsense_of_one_letter_leaves_that_one_out(world):
    world.repair()
    done = world.operator().replay(Filter(), ReplayOptions(fix=f"{__name__}:nan_of_v3"))
    assert done.counts == {"sent": 19, "fix-failed": 1}
    assert world.states()["v3"] == "open"
    assert all(json.loads(value) == {"was": 1} for value in world.run())


def nan_of_v3(record):
    return {"was": math.nan if record.value == b"v3" else 1}


class Panic(BaseException):
    """What is no Exception, as those of Rust's panics."""


def panic(_):
    raise Panic("index out of bounds")


def test_whatever_a_fix_raises_it_has_failed_for_its_letter():
    with pytest.raises(FixError, match=r"dead\[0\]@0 \(Panic: index out of bounds\)"):
        fixed(panic, LETTER)


def test_a_letter_that_cannot_be_decoded_can_be_fixed_whatever_that_raises():
    app = App("shop")
    app.handler("orders", decode=panic)(lambda record, ctx: None)
    letter = Letter(letters.foreign("dead", *letters.CONNECT, value=b"v"))
    assert fixed(lambda record: b"new" if record.data is None else b"", letter, app) == b"new"


WRITTEN = {
    "many digits": '{"n":12345678901234567.89,"sku":"x"}',
    "a power": '{"n":1E400,"sku":"x"}',
    "a whole number with a point": '{"n":1e2,"m":-0,"sku":"x"}',
    "a field twice": '{"n":1,"n":2,"sku":"x"}',
    "control characters": '{"n":"a\x85b\x7f","sku":"x"}',
    "escaped control characters": '{"n":"a\\u0085b\\u202e","sku":"x"}',
    "half a character": '{"n":"\\ud800","sku":"x"}',
    "spaces around": '  {"sku":"x"}\n',
    "no JSON": "n=1\r\nsku=x\r\n",
    "nothing odd": '{"n":[1,2.5,null],"sku":"x"}',
}


def of(value):
    return Letter(letters.foreign("dead", *letters.CONNECT, value=value))


def literal(text):
    """A text without the spaces that lay JSON out."""
    return text if text.startswith("n=") else "".join(text.split(" ")).replace("\n", "")


@pytest.mark.parametrize("name", WRITTEN)
def test_what_an_editor_does_not_touch_stays_as_it_was_written(name):
    value = WRITTEN[name]
    text, _ = editable(of(value.encode()))
    changed = text.replace("x", "FIXED")
    assert literal(changed) == literal(value).replace("x", "FIXED")


def test_json_is_laid_out_in_lines_where_that_changes_nothing():
    assert editable(of(b'{"n":[1],"s":"x"}')) == (
        '{\n  "n": [\n    1\n  ],\n  "s": "x"\n}',
        True,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"a":1,"n":12345678901234567.89}', b'{"a":1,"n":1.2345678901234568e+16}'),
        (b'{"a":1,"n":1,"n":2}', b'{"a":1,"n":2}'),
        (b'{"a":1,"n":1E400}', b'{"a":1,"n":Infinity}'),
        ('{"a":1,"n":"\x85"}'.encode(), b'{"a":1,"n":"\\x85"}'),
        ('{"a":1,"n":"\xe9"}'.encode(), b'{"a":1,"n":"\\u00e9"}'),
        (b'{"a":1}', b'{"a": 1}'),
        (b"n\r\nm", b"n\nm"),
        (b"n", b"n\n"),
        (b"\xff", b"\xfe"),
        (None, b"n"),
        (b"n", b""),
    ],
)
def test_a_difference_is_shown_whatever_differs(before, after):
    lines = [*difference(of(before), after)]
    assert any(line.startswith(("-", "+")) for line in lines)
    assert not any(line.startswith(" ") and '"n"' in line for line in lines)


def test_what_does_not_change_has_no_difference():
    assert [*difference(of(b'{"n":1E400}'), b'{"n":1E400}')] == []


@pytest.mark.parametrize(
    "after",
    [
        b'{"card":"4712","n":1.5}',  # a masked field changes
        b'{"card":"4711","n":1.50}',  # a number is written in another way
        b'{"card":"4711","n":1,"n":1.5}',
    ],
)
def test_where_fields_are_masked_it_is_said_that_more_changes_than_is_shown(after):
    app = App("shop", masked=["card"])
    app.handler("orders")(lambda record, ctx: None)
    letter = of(b'{"card":"4711","n":1.5}')
    *_, last = difference(letter, after, app)
    assert last.endswith("not all that differs is shown, as fields are masked")
    _, *shown = difference(letter, b'{"card":"4711","n":2.5}', app)
    assert shown == ['   "card": "***",', '-  "n": 1.5', '+  "n": 2.5', " }"]


def test_a_fix_that_fails_quotes_nothing_that_is_masked():
    app = App("shop", masked=["card"])
    app.handler("orders")(lambda record, ctx: None)

    def fix(record):
        raise type("No4711Error", (Exception,), {})("card 4711, key 4712")

    record = letters.foreign("dead", *letters.CONNECT, value=b'{"card":"4711"}')
    letter = Letter(Record(*record._replace(key=b'{"card":"4712"}')))
    with pytest.raises(FixError) as said:
        fixed(fix, letter, app)
    assert "(No***Error: card ***, key ***)" in str(said.value)


RELEASED = Event()


def hangs_at_two(record):
    if record.value in {b"v1", b"v3"}:
        RELEASED.wait()
    return record.value + b"!"


def hangs(record):
    RELEASED.wait()


@pytest.fixture
def released():
    RELEASED.clear()
    yield
    RELEASED.set()


def test_a_fix_that_hangs_leaves_its_letters_out(world, released, monkeypatch):
    monkeypatch.setattr("redrive.dead.selection.TRIAL_TIMEOUT", 0.2)
    world.repair()
    options, operator = ReplayOptions(fix=f"{__name__}:hangs_at_two"), world.operator()
    plan = operator.plan(Filter(), options)
    assert (plan.letters, plan.left_out) == (18, {"fix-failed": 2})
    said = "hangs_at_two, or the decoder before it, did not end within 200ms for shop.dead[0]@"
    assert said in plan.examples["fix-failed"]
    assert operator.replay(Filter(), options).counts == {"sent": 18, "fix-failed": 2}


def test_after_a_few_values_at_which_it_hangs_a_fix_is_not_asked_again(
    world, released, monkeypatch
):
    monkeypatch.setattr("redrive.dead.selection.TRIAL_TIMEOUT", 0.001)
    operator, options = world.operator(), ReplayOptions(fix=f"{__name__}:hangs")
    with pytest.raises(HandlerTimeout, match=r"did not end within 1ms .* nor for others before it"):
        operator.plan(Filter(), options)
