"""Log lines: time and level, the same for all loggers, and nothing that a record can fake."""

from __future__ import annotations

import json
import logging

import pytest

from redrive.logs import JsonLines, TextLines, foreign_line, is_json, log_to_stderr, shortened


def record(message="it works", **extra):
    made = logging.makeLogRecord(
        {"name": "shop", "levelno": logging.WARNING, "levelname": "WARNING", "msg": message}
    )
    made.created = 1751371696.789
    vars(made).update(extra)
    return made


def failing(text):
    try:
        raise ValueError(text)  # noqa: TRY301 -- for its trace
    except ValueError as error:
        return (type(error), error, error.__traceback__)


@pytest.fixture
def root():
    """The root logger as it is where nobody has configured it."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("py4j", "redrive.kafka")}
    root.handlers = []
    yield root
    root.handlers, root.level = before[0], root.level
    root.setLevel(before[1])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_a_line_of_text_has_time_level_and_logger():
    assert TextLines().format(record()) == "2025-07-01T12:08:16.789Z WARNING shop: it works"


def test_a_line_about_a_record_says_which():
    about = {"topic": "orders", "partition": 0, "offset": 17, "attempt": 2, "id": "7"}
    assert (
        TextLines()
        .format(record(**about))
        .endswith("shop: it works (orders[0]@17, attempt 2, id 7)")
    )
    told = TextLines().format(record("orders[0]@17 is gone", **about))
    assert told.endswith("shop: orders[0]@17 is gone"), "not twice"


FAKE = "x\n2025-07-01T12:08:16.789Z INFO redrive: all is well\r\x1b[2J\x85\u2028\u202e"


def test_no_text_can_fake_a_line_or_move_a_cursor():
    told = TextLines().format(record(FAKE, exc_info=failing(FAKE)))
    first, *others = told.split("\n")
    assert first.endswith("shop: x")
    assert others
    assert all(line.startswith("    ") for line in others)
    assert told.splitlines() == [first, *others], "nothing else that ends a line"
    assert "\\r\\x1b[2J\\x85\\u2028\\u202e" in told
    assert "\x1b" not in told


def test_the_trace_is_below_the_line_and_bounded():
    told = TextLines().format(record(exc_info=failing("no")))
    assert "\n    Traceback (most recent call last):\n" in told
    assert told.endswith("\n    ValueError: no")
    assert len(TextLines().format(record(exc_info=failing("x" * 100_000)))) < 20_000
    assert shortened("a" * 30 + "b" * 30, 20) == "aaaaa\n... 40 characters ...\n" + "b" * 15


def test_a_line_of_json_has_all_that_is_known():
    told = json.loads(JsonLines().format(record(FAKE, topic="orders", level_of_mine={"a": 1})))
    assert told == {
        "time": "2025-07-01T12:08:16.789Z",
        "level": "warning",
        "logger": "shop",
        "message": FAKE,
        "topic": "orders",
        "level_of_mine": {"a": 1},
    }
    told = json.loads(JsonLines().format(record(exc_info=failing("no"), odd=object())))
    assert told["trace"].endswith("ValueError: no")
    assert told["odd"].startswith("<object object")


def test_a_field_of_the_users_does_not_replace_one_of_the_line():
    assert json.loads(JsonLines().format(record(time="mine", level="mine")))["level"] == "warning"


def test_all_loggers_write_the_same_lines(root, capsys):
    log_to_stderr("info", "json")
    logging.getLogger("users.own").info("hello", extra={"order": 7})
    logging.getLogger("redrive.worker").debug("not this")
    logging.getLogger("py4j.clientserver").info("nor this")
    logging.getLogger("redrive.kafka").error("nor this")
    foreign_line("Spark says something")
    foreign_line("2025-07-01T12:08:16.789Z ERROR spark.TaskSetManager: Lost task 0.0")
    foreign_line('{"message": "as it is"}')
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    hello, spark, lost, as_it_is = lines
    assert (hello["message"], spark["message"]) == ("hello", "Spark says something")
    assert (lost["level"], lost["logger"]) == ("error", "spark.TaskSetManager")
    assert lost["message"] == "Lost task 0.0"
    assert as_it_is == {"message": "as it is"}
    assert lines[0]["order"] == 7
    assert is_json()


def test_asked_again_it_is_as_it_was_asked_last(root, capsys):
    log_to_stderr("info", "json")
    log_to_stderr("error", "text")
    logging.getLogger("users.own").warning("not this")
    logging.getLogger("users.own").error("once")
    assert capsys.readouterr().err.endswith("Z ERROR users.own: once\n")
    assert [type(each).__name__ for each in root.handlers].count("_ToStderr") == 1
    assert not is_json()


def test_what_others_have_configured_stays_where_that_is_wanted(root, capsys):
    root.addHandler(logging.NullHandler())
    log_to_stderr(only_first=True)
    logging.getLogger("users.own").error("theirs")
    assert not capsys.readouterr().err


def test_debug_shows_librdkafkas_lines_too(root, capsys):
    log_to_stderr("debug")
    logging.getLogger("redrive.kafka").warning("a broker is away")
    assert "a broker is away" in capsys.readouterr().err


@pytest.fixture
def pyspark_logger():
    from pyspark.logger import PySparkLogger

    found = PySparkLogger.getLogger("tests.pyspark")
    found.propagate = False
    yield found
    found.propagate = True


def test_tests_see_log_lines_as_text_whatever_pyspark_does_to_their_handlers(
    pyspark_logger, caplog
):
    pyspark_logger.error("theirs")
    logging.getLogger("users.own").error('a "quoted" word')
    assert 'a "quoted" word' in caplog.text
