from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import EnvelopeError, Record
from redrive.envelope import (
    ERROR_MESSAGE_BYTES,
    ERROR_TRACE_BYTES,
    Envelope,
    addressee,
    at_origin,
    fresh,
    parse,
    user_headers,
)
from redrive.history import ERROR_BYTES, attempts
from redrive.tuning import HISTORY_ATTEMPTS

OURS = {
    "redrive-app": "items",
    "redrive-id": "7",
    "redrive-id-scope": "stock",
    "redrive-origin-topic": "item.update",
    "redrive-origin-partition": "3",
    "redrive-origin-offset": "17",
    "redrive-origin-timestamp": "1700000000000",
    "redrive-first-received": "1700000000001",
    "redrive-attempt": "2",
    "redrive-due": "1700000300001",
    "redrive-not-before": "1700000400001",
    "redrive-error-type": "ValueError",
    "redrive-error-message": "no",
    "redrive-error-trace": "Traceback",
    "redrive-dead-reason": "exhausted",
}
ENVELOPE = Envelope(
    app="items",
    id="7",
    id_scope="stock",
    origin_topic="item.update",
    origin_partition=3,
    origin_offset=17,
    origin_timestamp=1_700_000_000_000,
    first_received=1_700_000_000_001,
    attempt=2,
    due=1_700_000_300_001,
    not_before=1_700_000_400_001,
    error_type="ValueError",
    error_message="no",
    error_trace="Traceback",
    dead_reason="exhausted",
)
MILLISECONDS = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = TEXT.filter(bool)
ENVELOPES = st.builds(
    Envelope,
    app=NAME,
    id=NAME,
    id_scope=st.none() | NAME,
    origin_topic=NAME,
    origin_partition=st.integers(0, 2**31 - 1),
    origin_offset=MILLISECONDS,
    origin_timestamp=st.none() | st.integers(-(2**63), 2**63 - 1),
    first_received=MILLISECONDS,
    attempt=st.integers(1, 10_000),
    due=st.none() | MILLISECONDS,
    not_before=st.none() | MILLISECONDS,
    error_type=st.none() | TEXT,
    error_message=st.none() | TEXT,
    error_trace=st.none() | TEXT,
    dead_reason=st.none() | TEXT,
)
USERS = st.sampled_from(["id", "", "redrive-", "redrive-mine", "Redrive-App", "x"]) | TEXT.filter(
    lambda name: name not in OURS
)
USER_HEADERS = st.lists(st.tuples(USERS, st.none() | st.binary(max_size=20)), max_size=6).map(tuple)


def written(**changes):
    """Headers as redrive writes them, some of them changed; None leaves one out."""
    texts = {**OURS, **{f"redrive-{name.replace('_', '-')}": to for name, to in changes.items()}}
    return tuple(
        (name, text if isinstance(text, bytes) else text.encode())
        for name, text in texts.items()
        if text is not None
    )


def test_each_field_is_one_readable_header():
    assert ENVELOPE.headers(()) == written()
    assert parse(written()) == ENVELOPE


@given(ENVELOPES, USER_HEADERS)
def test_a_hop_keeps_the_envelope_and_the_users_headers_byte_for_byte(envelope, user):
    headers = envelope.headers(user)
    assert parse(headers) == envelope
    assert user_headers(headers) == user


@given(ENVELOPES, USER_HEADERS, st.none() | st.binary(), st.none() | st.binary())
def test_a_parked_record_is_given_to_its_handler_as_it_came(envelope, user, key, value):
    parked = Record("items.retry.5m", 0, 99, key, value, envelope.headers(user), 123)
    seen = at_origin(parked, envelope)
    assert (seen.key, seen.value, seen.headers) == (key, value, user)
    assert (seen.topic, seen.partition) == (envelope.origin_topic, envelope.origin_partition)
    assert (seen.offset, seen.timestamp) == (envelope.origin_offset, envelope.origin_timestamp)


def test_fifty_hops_do_not_make_the_headers_grow():
    user = (("id", b"1"), ("id", None))
    headers = ENVELOPE.headers(user)
    size = sum(len(name) + len(value or b"") for name, value in headers)
    for _ in range(50):
        before = parse(headers)
        failed = replace(before, attempt=before.attempt + 1).failed(
            ValueError("no"), at=1_751_371_696_789, group="1" * 16
        )
        headers = failed.headers(user_headers(headers))
    assert len(headers) == len(ENVELOPE.headers(user)) + 1  # group and history, but no trace
    history = HISTORY_ATTEMPTS * (ERROR_BYTES + 40)
    assert sum(len(name) + len(value or b"") for name, value in headers) <= size + history
    assert [each.attempt for each in attempts(failed.history)] == [
        *range(failed.attempt - HISTORY_ATTEMPTS + 1, failed.attempt + 1)
    ]


def test_a_record_seen_for_the_first_time_knows_its_origin_and_has_one_attempt():
    record = Record("orders", 3, 17, timestamp=5)
    envelope = fresh(record, app="items", message_id="7", now=9)
    assert (envelope.origin_topic, envelope.origin_partition, envelope.origin_offset) == (
        "orders",
        3,
        17,
    )
    assert (envelope.origin_timestamp, envelope.first_received, envelope.attempt) == (5, 9, 1)
    assert parse(envelope.headers(())) == envelope


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"attempt": "0"}, "redrive-attempt is '0', not a number in its range"),
        ({"attempt": "-1"}, "redrive-attempt is '-1'"),
        ({"attempt": "two"}, "redrive-attempt is 'two'"),
        ({"attempt": "1_0"}, "redrive-attempt is '1_0'"),
        ({"attempt": " 7 "}, "redrive-attempt is ' 7 '"),
        ({"attempt": "٣"}, "redrive-attempt is '٣'"),
        ({"attempt": "9" * 5000}, "redrive-attempt is '9999"),
        ({"attempt": "2147483648"}, "redrive-attempt is '2147483648'"),
        ({"origin_partition": "2147483648"}, "redrive-origin-partition is '2147483648'"),
        ({"due": "9223372036854775808"}, "redrive-due is '9223372036854775808'"),
        ({"attempt": None}, "redrive-attempt is missing"),
        ({"due": "soon"}, "redrive-due is 'soon'"),
        ({"due": b"\xff"}, "redrive-due is not text"),
        ({"id": None}, "redrive-id is missing"),
        ({"id": ""}, "redrive-id is empty"),
        ({"id": b"\xff"}, "redrive-id is not text"),
        ({"app": ""}, "redrive-app is empty"),
        ({"origin_topic": None}, "redrive-origin-topic is missing"),
        ({"first_received": "1.5"}, "redrive-first-received is '1.5'"),
    ],
)
def test_a_broken_header_is_named_with_what_is_wrong(changes, problem):
    with pytest.raises(EnvelopeError) as raised:
        parse(written(**changes))
    text = str(raised.value)
    assert problem in text
    assert text.count("redrive-") == 1  # and nothing else is blamed
    assert len(text) < 300


def test_all_that_is_broken_is_named_at_once():
    with pytest.raises(EnvelopeError) as raised:
        parse(written(app=None, attempt="x", due=b"\xff", id=""))
    for header in ("redrive-app", "redrive-attempt", "redrive-due", "redrive-id"):
        assert header in str(raised.value)


def test_a_null_header_is_broken_where_it_is_needed():
    with pytest.raises(EnvelopeError, match="redrive-id is empty"):
        parse((*written(id=None), ("redrive-id", None)))


def test_of_a_repeated_header_the_last_counts():
    assert parse((("redrive-attempt", b"\xff"), *written())).attempt == 2
    assert parse((*written(), ("redrive-attempt", b"5"))).attempt == 5


@given(st.lists(st.tuples(st.sampled_from(list(OURS)), st.none() | st.binary(max_size=30))))
def test_headers_that_anybody_wrote_are_read_or_refused_but_never_crash(headers):
    addressee(tuple(headers))
    try:
        envelope = parse(tuple(headers))
    except EnvelopeError:
        return
    assert parse(envelope.headers(())) == envelope


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), None),
        ((("redrive-app", b"a"),), None),
        ((("redrive-app", b"a"), ("redrive-origin-topic", None)), None),
        ((("redrive-app", b"a"), ("redrive-origin-topic", b"t")), ("a", "t")),
        ((("redrive-app", b"\xff"), ("redrive-origin-topic", b"t")), ("\ufffd", "t")),
    ],
)
def test_for_whom_a_record_was_written_is_known_without_reading_the_rest(headers, expected):
    assert addressee(headers) == expected


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


class NotText(Exception):
    def __str__(self):
        return 7  # noqa: PLE0307 -- that is the mistake


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("no"), "ValueError", "no"),
        (ValueError(), "ValueError", ""),
        (Silent(), "test_envelope.Silent", "(no message: RuntimeError in Silent.__str__)"),
        (NotText(), "test_envelope.NotText", "(no message: TypeError in NotText.__str__)"),
        (ValueError("lone \ud800"), "ValueError", "lone \\ud800"),
        (ValueError("x" * 1024), "ValueError", "x" * 1024),
        (ValueError("x" * 1025), "ValueError", "x" * 1021 + "..."),
        (ValueError("€" * 1024), "ValueError", "€" * 340 + "..."),
    ],
)
def test_the_error_is_text_of_bounded_size_whatever_was_raised(error, kind, message):
    failed = ENVELOPE.failed(error, at=9)
    assert failed.error_type.endswith(kind)
    assert failed.error_message == message
    assert failed.error_trace is None


@given(st.text(), st.text())
def test_error_headers_are_at_most_one_kibibyte_and_can_be_read_back(start, filling):
    error = type("E" * 2000, (Exception,), {})(start + filling * 500)
    failed = ENVELOPE.failed(error, at=9, trace=True)
    for name, value in failed.headers(()):
        assert len(value) <= (ERROR_TRACE_BYTES if name.endswith("trace") else ERROR_MESSAGE_BYTES)
    assert parse(failed.headers(())) == failed


def test_a_stack_trace_travels_only_when_asked_for():
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018 -- it is the error that counts
    assert "Traceback" in ENVELOPE.failed(raised.value, at=9, trace=True).error_trace
    assert ENVELOPE.failed(raised.value, at=9).error_trace is None


def odd_syntax_error():
    error = SyntaxError("bad")
    error.lineno, error.text, error.offset = "abc", 5, "x"  # type: ignore[assignment]  # -- so odd
    return error


def test_an_error_that_cannot_be_formatted_is_told_without_its_trace():
    failed = ENVELOPE.failed(odd_syntax_error(), at=9, trace=True)
    assert failed.error_trace == "(no trace: AttributeError while SyntaxError was formatted)"
    assert failed.error_type == "SyntaxError"
