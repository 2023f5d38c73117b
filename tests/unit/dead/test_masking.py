"""Masked fields are in nothing that a command prints or writes out, whatever holds them."""

from __future__ import annotations

import enum
import io
import json
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import typer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from redrive import App
from redrive.cli import dead_options, dead_replay
from redrive.cli.commands import dead
from redrive.cli.dead_options import Whose
from redrive.dead import DeadLetters
from redrive.dead.desk import Means
from redrive.dead.filters import Filter
from redrive.dead.masking import apart, without
from redrive.dead.operator import Operator
from redrive.dead.showing import Seen, printable
from redrive.testing import Simulation

pydantic = pytest.importorskip("pydantic")

COMMAND = typer.main.get_command(dead.app)
SECRET = "s3cret-4111"
COMMANDS = [
    ("groups",),
    ("groups", "--json"),
    ("list",),
    ("list", "--json"),
    ("show", "--at", "shop.dead[0]@0"),
    ("show", "--at", "shop.dead[0]@0", "--json"),
    ("stats", "--json"),
    ("export",),
    ("try",),
    ("try", "--json"),
    ("replay",),
    ("replay", "--fix", f"{__name__}:moved"),
    ("replay", "--fix", f"{__name__}:moved", "--json"),
    ("replay", "--fix", f"{__name__}:failing", "--json"),
]


@dataclass
class Box:
    inner: Any


class Pair(NamedTuple):
    kind: str
    inner: Any


class Model(pydantic.BaseModel):
    inner: Any


class Root(pydantic.RootModel[Any]):
    pass


class Lax(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class Kind(enum.Enum):
    A = "a"


def plain(value):
    """What a producer would write as JSON."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return {plain(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, pydantic.BaseModel):
        return plain(value.model_dump())
    if hasattr(value, "__dict__"):
        return plain(vars(value))
    return value if value is None or isinstance(value, str | int) else repr(value)


WRAPPED = {
    "mapping": lambda inner: {"a": 1, "inner": inner},
    "list": lambda inner: [inner, {"b": None}],
    "tuple": lambda inner: (inner,),
    "dataclass": Box,
    "NamedTuple": lambda inner: Pair("x", inner),
    "model": lambda inner: Model(inner=inner),
    "root model": Root,
    "model with extra fields": lambda inner: Lax(inner=inner),
    "JSON text": lambda inner: json.dumps(plain(inner)),
    "JSON bytes": lambda inner: json.dumps(plain(inner)).encode(),
    "bytes": lambda inner: repr(inner).encode() + b"\xff",
    "text": repr,
    "an object": lambda inner: SimpleNamespace(inner=inner),
    "an iterator": lambda inner: iter([inner]),
}
HOLDERS = {
    "mapping": {"number": SECRET},
    "bytes": {b"number": SECRET.encode()},
    "list": {"number": [SECRET, 1, None]},
    "mapping below": {"number": {"value": SECRET}},
    "JSON": {"number": json.dumps({"value": SECRET})},
    "dataclass": {"number": Box(SECRET)},
    "an object": {"number": SimpleNamespace(value=SECRET)},
    "address": {"url": f"/charge?number={SECRET}"},
    "XML": {"xml": f"<number>{SECRET}</number>"},
    "repeated": {"number": SECRET, "note": f"charged {SECRET}"},
}


def value_of(record):
    return record.value.decode(errors="replace")


def moved(record):
    """Puts the value where nothing is masked."""
    return {"other": value_of(record), "number": 1}


def failing(record):
    raise ValueError(f"{value_of(record)!r} cannot be fixed")


def shop(decoded, value, *, message=f"card '{SECRET}' is refused", masked=("number",), **record):
    """An app whose record was decoded like that, and died of an error that quotes it."""
    app = App("shop", masked=masked, error_traces=True)

    @app.handler("orders", decode=lambda _: decoded)
    def handle(record, ctx):
        raise ValueError(message)

    sim = Simulation(app)
    sim.send("orders", value, **record)
    sim.run_until_empty()
    return sim


def printed(sim, *arguments):
    """What a command prints about the letters of a simulation."""
    letters = DeadLetters(sim.broker, app=sim.app)
    means = Means(None, sim.broker, sim.clock, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_options, "load_app", lambda _: sim.app)
        patch.setattr(Whose, "letters", lambda _: letters)
        patch.setattr(dead_replay, "open_operator", lambda *_: Operator(letters, means, "alice"))
        patch.setenv("COLUMNS", "400")
        name, *rest = arguments
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out), suppress(typer.Exit):
            COMMAND.main(
                [name, "shop:app", *rest, "--bootstrap", "localhost:1"],
                "dead",
                standalone_mode=False,
            )
    assert out.getvalue()
    return out.getvalue()


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(HOLDERS)),
    st.lists(st.sampled_from(sorted(WRAPPED)), max_size=4),
    st.sampled_from(["json", "text", "bytes"]),
)
def test_no_command_prints_what_a_masked_field_holds(holder, wrappers, raw):
    decoded: Any = HOLDERS[holder]
    assume("an iterator" not in wrappers[:-1])  # as text it has lost what it holds
    for each in wrappers:
        decoded = WRAPPED[each](decoded)
    values = {
        "json": json.dumps({"deep": [{"number": SECRET}]}),
        "text": f"number={SECRET}",
        "bytes": f"\x00{SECRET}".encode() + b"\xff",
    }
    with shop(decoded, values[raw]) as sim:
        for arguments in COMMANDS:
            assert SECRET not in printed(sim, *arguments), arguments


def test_keys_headers_ids_messages_and_traces_do_not_quote_it():
    data = {"number": SECRET, "owner": "A"}
    headers = (("number", b"17"), ("note", f"of {SECRET}".encode()), ("raw", b"\xff"), ("n", None))
    with shop(data, json.dumps(data), key=f"k-{SECRET}", headers=headers) as sim:
        for arguments in COMMANDS:
            assert SECRET not in printed(sim, *arguments), arguments
        shown = printed(sim, "show", "--at", "shop.dead[0]@0")
    assert "ValueError: card '***' is refused" in shown
    assert "key       k-***" in shown
    assert "header    number = ***" in shown
    assert "header    note = of ***" in shown
    assert "header    raw = (1 bytes; fields of it are masked)" in shown
    assert '"owner": "A"' in shown
    assert "raise ValueError(message)" in shown


HELD_BY = {
    "key": {"key": json.dumps({"number": SECRET})},
    "key below": {"key": json.dumps([{"card": {"number": SECRET}}])},
    "header": {"headers": (("number", SECRET.encode()),)},
    "header with JSON": {"headers": (("card", json.dumps({"number": SECRET}).encode()),)},
    "masked header with JSON": {"headers": (("number", json.dumps([SECRET]).encode()),)},
    "masked name": {"key": json.dumps({"number": {SECRET: 1}})},
}


@pytest.mark.parametrize("holder", sorted(HELD_BY))
def test_what_key_and_headers_hold_is_quoted_nowhere(holder):
    value = {"owner": "A", "note": f"of {SECRET}"}
    with shop(value, json.dumps(value), **HELD_BY[holder]) as sim:
        for arguments in COMMANDS:
            assert SECRET not in printed(sim, *arguments), arguments
        shown = printed(sim, "show", "--at", "shop.dead[0]@0")
        letters = DeadLetters(sim.broker, app=sim.app)
        found, _ = letters.some(Filter(text="4111", as_seen=True))
    assert "ValueError: card '***' is refused" in shown
    assert '"note": "of ***"' in shown
    assert found == []


@pytest.mark.parametrize(
    "record",
    [
        {"key": b"\x00\x00\x00\x00\x07\x16" + SECRET.encode()},  # as Avro, which is UTF-8 here
        {"key": SECRET.encode() + b"\xff"},
        {"key": f"number={SECRET}"},
        {"headers": (("number", SECRET.encode() + b"\xff"),)},
        {"headers": (("query", f"?number={SECRET}".encode()),)},
    ],
)
def test_an_error_is_not_shown_if_a_key_or_header_cannot_be_taken_apart(record):
    value = {"owner": "A"}
    with shop(value, json.dumps(value), **record) as sim:
        for arguments in COMMANDS:
            assert SECRET not in printed(sim, *arguments), arguments
        shown = printed(sim, "show", "--at", "shop.dead[0]@0")
    assert "ValueError: (not shown" in shown


def test_what_was_written_counts_beside_what_was_decoded():
    """Numbers as they are in the text, and all that a field holds which is there twice."""
    value = '{"number": "first-4111", "number": 4.50e3}'
    message = "first-4111 and 4.50e3 are refused"
    with shop(json.loads(value), value, message=message) as sim:
        shown = printed(sim, "show", "--at", "shop.dead[0]@0")
    assert "ValueError: *** and *** are refused" in shown


TWICE = b'{"number": "first-4111", "number": 4.50e3}'


@pytest.mark.parametrize(
    "record",
    [
        {"key": TWICE},
        {"headers": (("card", TWICE),)},
        {"headers": (("number", TWICE),)},
        {"value": json.dumps({"card": TWICE.decode()})},
        {"value": json.dumps({"number": TWICE.decode()})},
    ],
)
def test_what_was_written_counts_in_keys_headers_and_texts_too(record):
    given = {"value": '{"owner": "A"}', "message": "first-4111 and 4.50e3 are refused", **record}
    value = given.pop("value")
    with shop(json.loads(value), value, **given) as sim:
        shown = printed(sim, "show", "--at", "shop.dead[0]@0")
    assert "ValueError: *** and *** are refused" in shown


def test_a_record_that_hides_very_much_beside_its_value_is_hidden_as_a_whole():
    headers = tuple((f"h{n}", json.dumps({"number": f"{SECRET}-{n}"}).encode()) for n in range(500))
    value = {"note": f"of {SECRET}-77"}
    with shop(value, json.dumps(value), headers=headers, message=f"{SECRET}-77") as sim:
        for arguments in COMMANDS:
            assert SECRET not in printed(sim, *arguments), arguments


@pytest.mark.parametrize(
    "decoded", [SECRET, SECRET.encode(), [SECRET], Root(SECRET), json.dumps(SECRET), 4111, object()]
)
def test_a_value_that_cannot_be_taken_apart_is_hidden_and_so_is_its_message(decoded):
    with shop(decoded, SECRET) as sim:
        shown = printed(sim, "show", "--at", "shop.dead[0]@0")
        [row] = printed(sim, "export").splitlines()[:1]
    assert "value     hidden\n(11 bytes; fields of it are masked)" in shown
    assert shown.count("(not shown: fields of the record are masked, and it could quote them)") == 2
    assert "is refused" not in shown
    assert json.loads(row)["value"] == "(11 bytes; fields of it are masked)"
    assert json.loads(row)["masked"] is True


NAMES = ("alice-wonder", "tok_secretcard")


@pytest.mark.parametrize("arguments", [*COMMANDS, ("stats",), ("show", "--at", "shop.dead[0]@1")])
def test_words_of_masked_fields_are_in_no_pattern_class_or_reason(arguments):
    """A pattern leaves out numbers and quoted text; names and tokens are neither."""
    name, card = NAMES
    app = App("shop", masked=["name", "card"], error_traces=True)

    @app.handler("orders")
    def handle(record, ctx):
        error = type(f"No{name}", (Exception,), {}) if b"{" in record.value else ValueError
        raise error(f"no customer {name} with card {card}")

    with Simulation(app) as sim:
        for number in range(2):
            sim.send("orders", json.dumps({"name": name, "card": card, "n": number}), key=card)
        sim.send("orders", f"name={name}")  # what it holds cannot be told from the rest
        sim.run_until_empty()
        shown = printed(sim, *arguments)
    assert not any(secret in shown for secret in NAMES)


def test_raw_bytes_leave_only_if_somebody_says_so():
    value = json.dumps({"number": SECRET})
    with shop({"number": SECRET}, value) as sim:
        assert (
            json.loads(printed(sim, "export").splitlines()[0])["value"] == '{\n  "number": "***"\n}'
        )
        assert json.loads(printed(sim, "export", "--unmasked").splitlines()[0])["value"] == value


def test_an_app_that_masks_nothing_shows_everything():
    with shop({"number": SECRET}, SECRET, masked=(), key=SECRET) as sim:
        for arguments in COMMANDS[2:6]:
            assert SECRET in printed(sim, *arguments)
        row = json.loads(printed(sim, "export").splitlines()[0])
    assert (row["value"], row["key"], "masked" in row) == (SECRET, SECRET, False)


def test_what_is_not_masked_is_shown_as_it_is():
    at = datetime(2026, 11, 18, tzinfo=UTC)
    value = {"at": at, "kind": Kind.A, "n": 1.5, "flag": True, "none": None, "text": '{"a": 1}'}
    found = apart({"inner": Box(value), "card": {"number": 4111, "owner": "A"}}, ["card.number"])
    assert found.data == {
        "inner": {"inner": {**value, "kind": "a"}},
        "card": {"number": "***", "owner": "A"},
    }
    assert (found.secrets, found.complete) == ({"4111"}, True)


def test_a_path_is_masked_wherever_its_last_names_are():
    data = {"order": {"card": {"number": 1}}, "number": 2, "card": {"number": 3}}
    assert apart(data, ["card.number"]).data == {
        "order": {"card": {"number": "***"}},
        "number": 2,
        "card": {"number": "***"},
    }


def test_what_contains_itself_is_hidden_from_some_depth_on():
    data: dict[str, Any] = {"a": 1}
    data["self"] = data
    assert not apart(data, ["number"]).complete


class Failing(tuple):  # noqa: SLOT001 -- as somebody may write it
    _fields = ("number", "missing")


def test_an_object_that_does_not_tell_its_fields_after_all_is_hidden():
    with shop({"inner": Failing([SECRET])}, "x") as sim:
        assert SECRET not in printed(sim, "show", "--at", "shop.dead[0]@0")


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("O'Neil", "no O'Neil, \"O\\'Neil\" or O%27Neil", 'no ***, "***" or ***'),
        ("häuser", 'häuser "h\\u00e4user" HÄUSER', '*** "***" ***'),
        ("a b&c", "?q=a+b%26c&r=a%20b%26c", "?q=***&r=***"),
        ("12", "12 of 1234, not 912", "*** of 1234, not 912"),
        ("4111-2222", "card 4111-22...", "card ***..."),
        ("4111-2222", "card 4111-22", "card 4111-22"),
        ("line\nend", "'line\\nend'", "'***'"),
        (" ", "a b", "a b"),
    ],
)
def test_errors_quote_values_in_many_ways(secret, text, shown):
    assert without(text, {secret}) == shown


@given(st.text(min_size=4).filter(str.strip), st.text(), st.text())
def test_a_secret_is_in_no_text_whatever_is_around_it(secret, before, after):
    found = without(f"{before}{secret}{after}", {secret})
    assert secret not in found or secret in "***"


def test_a_terminal_obeys_nothing_that_is_in_a_letter():
    assert printable("a\x1b[2J\x9b2J\tb\n\ud800") == "a\\x1b[2J\\x9b2J\tb\n\\ud800"


def test_a_value_nested_too_deep_for_json_is_text():
    from letters import foreign

    from redrive.dead.letter import Letter

    value = b"[" * 200_000
    assert Seen(Letter(foreign("dead", value=value))).value.how == "text"


def test_a_value_with_very_many_masked_fields_is_hidden_as_a_whole():
    value = json.dumps([{"number": f"{SECRET}-{n}", "note": f"of {n}"} for n in range(500)])
    with shop(json.loads(value), value) as sim:
        for arguments in COMMANDS:
            assert SECRET not in printed(sim, *arguments), arguments
