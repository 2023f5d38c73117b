from __future__ import annotations

import pytest

from redrive.engines.spark.frames import plan_check
from redrive.engines.spark.frames.faults import (
    ExpressionError,
    FunctionError,
    as_records_error,
    fault,
)
from redrive.engines.spark.task import WorkerKilledError


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
    assert isinstance(as_records_error(RAISED), FunctionError)
    assert str(as_records_error(RAISED)) == "ValueError: mine"
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
