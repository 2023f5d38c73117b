"""Dead letters of other consumers: read as their writers document them."""

from __future__ import annotations

import letters
import pytest

from redrive import ConfigurationError
from redrive.dead.dialects import DIALECTS, dialect_named, java_number
from redrive.dead.letter import Letter

EXPECTED = {
    "spring": (
        letters.SPRING,
        "orders[3]@4711",
        "java.lang.IllegalStateException",
        "billing",
        None,
    ),
    "smallrye": (letters.SMALLRYE, "movies[2]@99", "java.io.IOException", None, None),
    "connect": (
        letters.CONNECT,
        "orders[0]@5",
        "org.apache.kafka.connect.errors.DataException",
        "sink",
        "VALUE_CONVERTER",
    ),
    "streams": (letters.STREAMS, "clicks[7]@12", "java.lang.NumberFormatException", None, None),
    "share": (
        letters.SHARE,
        "jobs[2]@41",
        None,
        "workers",
        "Offset delivery count exceeded the threshold.",
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_letter_is_recognised_and_read(name):
    headers, origin, error, app, reason = EXPECTED[name]
    letter = Letter(letters.foreign("dead", *headers))
    assert letter.dialect.name == name
    assert (letter.origin, letter.error_type, letter.app, letter.reason) == (
        origin,
        error,
        app,
        reason,
    )
    assert len(letter.group) == 16
    assert Letter(letter.record, dialect_named(name)).origin == origin


def test_springs_retryable_topics_write_other_names():
    letter = Letter(letters.foreign("dead", *letters.SPRING_RETRYABLE))
    assert (letter.dialect.name, letter.origin, letter.attempt) == ("spring", "orders[1]@27", 4)
    assert letter.origin_timestamp == 1_751_371_000_000


def test_only_the_headers_of_its_writer_are_taken_off():
    assert Letter(letters.foreign("dead", *letters.SPRING)).headers == (("trace-id", b"abc"),)


def test_numbers_of_java_are_read_in_all_widths_and_as_text():
    assert java_number((-2).to_bytes(4, signed=True)) == -2
    assert java_number((1 << 40).to_bytes(8)) == 1 << 40
    assert java_number(b"27") == 27
    assert java_number(b"") is None
    assert java_number(b"123456789x") is None


def test_the_group_of_a_foreign_letter_is_its_class_and_where_it_was_raised():
    def spring(trace, message=b"no"):
        changed = {"kafka_dlt-exception-stacktrace": trace, "kafka_dlt-exception-message": message}
        kept = [(name, changed.get(name, value)) for name, value in letters.SPRING]
        return Letter(letters.foreign("dead", *kept)).group

    one = spring(b"x\nCaused by: y: order 1\n\tat a.B.lambda$c$0(B.java:7)\n")
    assert one == spring(b"x\nCaused by: y: order 2\n\tat a.B.lambda$c$3(B.java:9)\n", b"other")
    assert one != spring(b"x\nCaused by: y: order 1\n\tat a.B.d(B.java:7)\n")


def test_a_trace_of_empty_lines_keeps_nobody_from_counting():
    trace = b"\n" * 1_000_000 + b"\tat com.shop.A.b(A.java:1)\n"  # it took half an hour
    given = {**dict(letters.SPRING), "kafka_dlt-exception-stacktrace": trace}
    other = given | {"kafka_dlt-exception-stacktrace": b"x\n  at com.shop.A.b(A.java:7)\n"}
    made = [Letter(letters.foreign("dead", *each.items())).group for each in (given, other)]
    assert made[0] == made[1]


def test_a_record_that_says_nothing_is_a_letter_of_an_unknown_dialect():
    letter = Letter(letters.foreign("dead", ("a", b"b"), ("a", None)))
    assert (letter.dialect.name, letter.origin, letter.reason) == ("unknown", None, None)
    assert letter.headers == (("a", b"b"), ("a", None))


def test_broken_headers_cost_only_their_own_field():
    headers = [
        ("redrive-dead-reason", b"exhausted"),
        ("redrive-origin-topic", b"orders"),
        ("redrive-origin-partition", b"many"),
        ("redrive-error-message", b"\xff"),
        ("redrive-attempt", None),
    ]
    letter = Letter(letters.foreign("shop.dead", *headers))
    assert (letter.dialect.name, letter.origin) == ("redrive", "orders")
    assert (letter.error_message, letter.attempt) == ("\ufffd", None)


def test_a_replay_is_recognised_in_any_dialect():
    headers = (*letters.SPRING, ("redrive-replay-count", b"2"), ("redrive-operation", b"x"))
    letter = Letter(letters.foreign("dead", *headers))
    assert (letter.replay_count, letter.operation) == (2, "x")
    assert letter.headers == (("trace-id", b"abc"),)


def test_a_dialect_that_there_is_not_is_a_sentence():
    assert dialect_named("auto") is None
    with pytest.raises(ConfigurationError, match="there is no dialect 'sprung'; it can be auto,"):
        dialect_named("sprung")


def test_every_dialect_says_where_a_letter_comes_from():
    assert all("origin_topic" in each.fields for each in DIALECTS.values())
