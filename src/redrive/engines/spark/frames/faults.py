"""Faults: whose fault is it that a job failed? Only a proof counts against a record."""

from __future__ import annotations

from typing import Final, Literal

from redrive.engines.spark.session import last_line
from redrive.engines.spark.task import WorkerKilledError
from redrive.errors import RedriveError

Fault = Literal["data", "function", "death", "mistake", "outage"]
"""data: an expression that cannot be computed for a row; function: a Python function of the user's
raised; death: a Python worker died, at each attempt of a task; mistake: Spark does not understand
what it is asked; outage: anything else."""

_DATA: Final = "22"
"""The class of SQL states of data exceptions: casts, overflows, division by zero, bad dates."""
_OVERFLOW: Final = "java.lang.ArithmeticException"
"""What has no SQL state: Spark's Kafka source with a timestamp that microseconds cannot say."""
_FUNCTION: Final = "PYTHON_EXCEPTION"
_DEATH: Final = "Python worker exited unexpectedly"
_MISTAKES: Final = ("AnalysisException", "ParseException")


class ExpressionError(RedriveError):
    """An expression of a frame handler cannot be computed for a row."""


class FunctionError(RedriveError):
    """A Python function of a frame handler raised for a row."""


def as_sparks(error: Exception) -> Exception:
    """What Spark says, where Java has wrapped it: the failure of a broadcast comes so."""
    from pyspark.errors.exceptions.captured import UnknownException, convert_exception

    java = getattr(error, "java_exception", None)
    while java is not None:
        found = convert_exception(java)
        if not isinstance(found, UnknownException):
            return found
        java = java.getCause()
    return error


def fault(error: BaseException) -> Fault:
    """Whose fault an error of a Spark job is."""
    state, condition = _told(error, "getSqlState"), _told(error, "getCondition")
    if state.startswith(_DATA):
        return "data"
    if condition == _FUNCTION or type(error).__name__ == "PythonException":
        return "function"
    if type(error).__name__ in _MISTAKES:
        return "mistake"
    if _DEATH in str(error):
        return "death"
    if _OVERFLOW in str(error):
        return "data"
    return "outage"


def as_records_error(error: BaseException) -> RedriveError:
    """The error as it stands on a record that caused it."""
    match fault(error):
        case "function":
            return FunctionError(said(error))
        case "death":
            return WorkerKilledError(
                "the Python worker died with this record and nothing else to do, at every attempt"
            )
        case _:
            return ExpressionError(said(error))


def said(error: BaseException) -> str:
    """The line of an error of Spark's that says what it is: Python's last one, Java's first."""
    return last_line(error) if fault(error) == "function" else str(error).strip().partition("\n")[0]


def _told(error: BaseException, method: str) -> str:
    ask = getattr(error, method, None)
    return str(ask() or "") if callable(ask) else ""
