from __future__ import annotations

import traceback

import pytest
from pyspark.errors import PySparkTypeError
from pyspark.errors.exceptions.captured import AnalysisException

from redrive import Bury, ConfigurationError, Record, Retry, RetryPolicy
from redrive import envelope as envelopes
from redrive.decisions import Park
from redrive.engines.spark.frames import plan_check
from redrive.engines.spark.frames.faults import (
    ExpressionError,
    FunctionError,
    as_records_error,
    as_users_mistake,
    fault,
    is_users_mistake,
)
from redrive.engines.spark.task import WorkerKilledError
from redrive.spark import park


class SparksError(Exception):
    def __init__(self, text: str, state: str | None = None, condition: str | None = None) -> None:
        super().__init__(text)
        self._state, self._condition = state, condition

    def getSqlState(self) -> str | None:  # noqa: N802 -- Spark's name
        return self._state

    def getCondition(self) -> str | None:  # noqa: N802 -- Spark's name
        return self._condition


CAST = SparksError("[CAST_INVALID_INPUT] The value 'x'.\n== DataFrame ==\nat", "22018", "CAST")
RAISED = SparksError("An exception was thrown:\nValueError: mine", "38000", "PYTHON_EXCEPTION")


class Picky(Exception):
    """Of a class that cannot be made from a message alone."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Mute(Exception):
    """Of a class that needs what only its maker knew."""

    def __str__(self) -> str:
        return self.nothing


def raised_in_a_worker(error: BaseException) -> SparksError:
    """As it comes from a Python worker: its stack trace, within what Spark says about it."""
    with pytest.raises(type(error)) as caught:
        raise error
    trace = "".join(traceback.format_exception(caught.value))
    text = f"Job aborted due to stage failure: Task 0 in stage 1.0:\n{trace}\n"
    return SparksError(text, "38000", "PYTHON_EXCEPTION")


def never_raised(error: BaseException, by: BaseException) -> BaseException:
    error.__cause__ = by
    return error


def caused(error: BaseException, by: BaseException) -> BaseException:
    try:
        try:
            raise by
        except type(by) as cause:
            raise error from cause
    except type(error) as raised:
        return raised


@pytest.mark.parametrize(
    ("raised", "retried"),
    [
        (ValueError("bad"), False),
        (TimeoutError("slow: very"), True),
        (TimeoutError(), True),
        (caused(RuntimeError("outer"), TimeoutError("slow")), True),
        (caused(TimeoutError("slow"), ValueError("bad")), False),
        (caused(TimeoutError("slow"), ValueError()), False),
        (RuntimeError("other"), False),
        (never_raised(TimeoutError("slow"), ValueError("bad: worse")), False),
        (Picky(code=7), False),
        (Retry("not yet"), True),
        (Bury("never"), False),
    ],
)
def test_policies_know_what_a_function_has_raised(raised, retried):
    policy = RetryPolicy("5s", retry_on=[TimeoutError], bury_on=[ValueError])
    envelope = envelopes.fresh(Record("t"), app="a", message_id="1", now=0)
    found = as_records_error(raised_in_a_worker(raised))
    assert type(found) is type(raised)
    assert str(found) == str(raised)
    for error in (raised, found):
        assert isinstance(policy.decide(envelope, error, 0, 1), Park) is retried


def test_an_error_whose_class_cannot_be_rebuilt_is_said_as_it_was():
    odd = [Mute("told"), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")]
    for error, told in zip(odd, ["Mute", "'utf-8' codec can't decode"], strict=True):
        found = as_records_error(raised_in_a_worker(error))
        assert isinstance(found, FunctionError)
        assert told in str(found)
        assert type(found.__cause__) is type(error)
    hidden = type("Hidden", (Exception,), {"__module__": "nowhere.to.be.found"})
    found = as_records_error(raised_in_a_worker(hidden("text")))
    assert isinstance(found, FunctionError)
    assert str(found) == "nowhere.to.be.found.Hidden: text"


def handler_with_a_mistake():
    return "text".cast("string")


def handler_with_a_bad_argument():
    return park(7, after="not a time")


@pytest.mark.parametrize(
    ("handler", "what", "line"),
    [
        (handler_with_a_mistake, "AttributeError: 'str' object", 'return "text".cast("string")'),
        (handler_with_a_bad_argument, "'not a time' is not a duration", 'park(7, after="not a'),
    ],
)
def test_a_mistake_of_the_users_is_said_with_its_line(handler, what, line):
    with pytest.raises((AttributeError, ConfigurationError)) as raised:
        handler()
    assert is_users_mistake(raised.value)
    told = str(as_users_mistake(raised.value, "orders"))
    assert told.startswith('frame handler of "orders": ')
    assert what in told
    assert line in told
    assert f"{__file__}, line {handler.__code__.co_firstlineno + 1}: " in told


def from_java():
    error = Exception("An error occurred while calling o7.jdbc")
    error.java_exception = object()
    return error


@pytest.mark.parametrize(
    ("error", "mistake"),
    [
        (AttributeError("cast"), True),
        (KeyError("x"), True),
        (PySparkTypeError("Argument `col` should be a Column"), True),
        (ConnectionRefusedError("the feature store is away"), False),
        (TimeoutError("likewise"), False),
        (from_java(), False),
        (AnalysisException.__new__(AnalysisException), False),
    ],
)
def test_what_may_pass_is_no_mistake(error, mistake):
    assert is_users_mistake(error) is mistake


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (CAST, "data"),
        (SparksError("[DIVIDE_BY_ZERO]", "22012", "DIVIDE_BY_ZERO"), "data"),
        (RAISED, "function"),
        (SparksError("Job aborted: Python worker exited unexpectedly (crashed)"), "death"),
        (SparksError("Caused by: java.lang.ArithmeticException: long overflow"), "data"),
        (SparksError("ExecutorLostFailure (executor 1 exited)"), "outage"),
        (SparksError("Python worker failed to connect back"), "outage"),
        (SparksError("org.apache.kafka.common.errors.TimeoutException"), "outage"),
        (SparksError("[FAILED_READ_FILE]", "KD001", "FAILED_READ_FILE"), "outage"),
        (OSError("the connection to Spark is gone"), "outage"),
    ],
)
def test_only_what_the_rows_do_counts_against_a_record(error, whose):
    assert fault(error) == whose


def test_a_record_bears_the_line_that_says_what_happened():
    assert isinstance(as_records_error(CAST), ExpressionError)
    assert str(as_records_error(CAST)) == "[CAST_INVALID_INPUT] The value 'x'."
    unknown = SparksError("Traceback:\n  File\nno.such.Thing: mine", None, "PYTHON_EXCEPTION")
    assert isinstance(as_records_error(unknown), FunctionError)
    assert str(as_records_error(unknown)) == "no.such.Thing: mine"
    died = as_records_error(SparksError("Python worker exited unexpectedly"))
    assert isinstance(died, WorkerKilledError)


READ = "Scan KafkaRelation(strategy=Assign)"


@pytest.mark.parametrize(
    ("node", "word"),
    [
        ("Exchange", "shuffle"),
        ("Coalesce", "coalesce"),
        ("Union", "union"),
        ("Sort", "sort"),
        ("CartesianProduct", "cross join"),
    ],
)
def test_what_moves_rows_is_refused_in_a_sentence(node, word):
    told = plan_check.refusal(["Project", node, "BroadcastExchange", READ])
    assert told is not None
    assert word in told
    assert "broadcast(...)" in told


@pytest.mark.parametrize("read", [READ, "BatchScan KafkaTable"])
def test_a_broadcast_join_is_fine(read):
    assert plan_check.refusal(["BroadcastHashJoin", "BroadcastExchange", read]) is None


def test_a_result_without_the_given_rows_is_refused():
    told = plan_check.refusal(["MapInArrow", "Project", "Scan parquet"])
    assert told is not None
    assert "not made of the rows that it was given" in told
