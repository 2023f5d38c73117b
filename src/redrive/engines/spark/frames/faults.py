"""Faults: whose fault is it that a job failed? Only a proof counts against a record."""

from __future__ import annotations

from typing import Final, Literal

from redrive.engines.spark.session import last_line
from redrive.errors import RedriveError

Fault = Literal["data", "function", "mistake", "outage"]
"""data: an expression that cannot be computed for a row; function: a Python function of the user's
raised; mistake: Spark does not understand what it is asked; outage: anything else."""

_DATA: Final = "22"
"""The class of SQL states of data exceptions: casts, overflows, division by zero, bad dates."""
_FUNCTION: Final = "PYTHON_EXCEPTION"
_MISTAKES: Final = ("AnalysisException", "ParseException")


class ExpressionError(RedriveError):
    """An expression of a frame handler cannot be computed for a row."""


class FunctionError(RedriveError):
    """A Python function of a frame handler raised for a row."""


def fault(error: BaseException) -> Fault:
    """Whose fault an error of a Spark job is."""
    state, condition = _told(error, "getSqlState"), _told(error, "getCondition")
    if state.startswith(_DATA):
        return "data"
    if condition == _FUNCTION or type(error).__name__ == "PythonException":
        return "function"
    if type(error).__name__ in _MISTAKES:
        return "mistake"
    return "outage"


def as_records_error(error: BaseException) -> RedriveError:
    """The error as it stands on a record that caused it."""
    if fault(error) == "function":
        return FunctionError(last_line(error))
    return ExpressionError(first_line(error))


def first_line(error: BaseException) -> str:
    """The first line of an error of Spark's, which says what it is; the others are traces."""
    return str(error).strip().partition("\n")[0]


def _told(error: BaseException, method: str) -> str:
    ask = getattr(error, method, None)
    return str(ask() or "") if callable(ask) else ""
