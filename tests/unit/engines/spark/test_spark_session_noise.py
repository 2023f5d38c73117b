"""What Spark prints comes through, but for the last words of planners that were stopped."""

from __future__ import annotations

from redrive.engines.spark.spark_session import without_last_words

TRACE = [
    "Traceback (most recent call last):\n",
    '  File "pyspark/sql/streaming/python_streaming_source_runner.py", line 299, in main\n',
    '  File "socket.py", line 724, in write\n',
]


def test_a_planner_that_was_cut_off_is_not_heard() -> None:
    lines = ["before\n", *TRACE, "BrokenPipeError: [Errno 32] Broken pipe\n", "after\n"]
    assert list(without_last_words(lines)) == ["before\n", "after\n"]
    assert list(without_last_words(TRACE)) == []


def test_every_other_error_is() -> None:
    of_planner = [*TRACE, "ValueError: what a user has to know\n"]
    of_others = ["Traceback (most recent call last):\n", '  File "shop.py"\n', "EOFError\n"]
    lines = [*of_planner, *of_others, "after\n"]
    assert list(without_last_words(lines)) == lines


LINK = "During handling of the above exception, another exception occurred:\n"


def test_what_links_last_words_is_not_shown_either():
    cut_off = [*TRACE, "BrokenPipeError: [Errno 32] Broken pipe\n"]
    linked = ["before\n", *cut_off, "\n", LINK, "\n", *cut_off]
    assert list(without_last_words(linked)) == ["before\n", "\n"]


def test_what_links_other_traces_is_shown():
    others = ["Traceback (most recent call last):\n", '  File "a.py"\n', "ValueError: 1\n"]
    linked = [*others, LINK, *others, LINK, "after\n"]
    assert list(without_last_words(linked)) == linked
