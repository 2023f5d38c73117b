"""Faults: whose fault is it that a job failed? Only a proof counts against a record."""

from __future__ import annotations

import re
import sys
import traceback
from itertools import pairwise
from typing import Final, Literal

from redrive.engines.spark.spark_session import last_line
from redrive.engines.spark.task import WorkerKilledError
from redrive.errors import ConfigurationError, RedriveError
from redrive.signals import Signal

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
_JAVAS: Final = ("py4j.", "pyspark.errors.exceptions.captured")
_NOT_USERS: Final = ("redrive", "pyspark", "py4j")
_ERROR_LINE: Final = re.compile(
    r"^(?: .*\n)([A-Za-z_][\w.]*)(?:: ?(.*))?$"
    r"|^([A-Za-z_][\w.]*)(?:: ?(.*))?$(?=\n+(?:The above exception was|During handling of))",
    re.MULTILINE,
)
"""The line of a stack trace that says what was raised: after those of its frames, if it has any."""


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


def is_users_mistake(error: BaseException) -> bool:
    """Whether what a frame handler raised while it made its plan is a mistake in its own Python.

    Not what Java said (a table that is away), and not what the system or the network said: those
    may pass, and a mistake does not.
    """
    if isinstance(error, RedriveError | OSError):
        return isinstance(error, ConfigurationError)  # what send() or park() cannot take
    return not (hasattr(error, "java_exception") or type(error).__module__.startswith(_JAVAS))


def as_users_mistake(error: BaseException, topic: str) -> ConfigurationError:
    """The sentence about it, with the line of the user's code that raised it."""
    own = [
        step
        for frame, step in zip(
            traceback.walk_tb(error.__traceback__),
            traceback.extract_tb(error.__traceback__),
            strict=True,
        )
        if str(frame[0].f_globals.get("__name__")).partition(".")[0] not in _NOT_USERS
    ]
    what = f"{type(error).__name__}: {error}"
    where = f" ({own[-1].filename}, line {own[-1].lineno}: {own[-1].line})" if own else ""
    return ConfigurationError(f'frame handler of "{topic}": {what}{where}')


def as_records_error(error: BaseException) -> Exception:
    """The error as it stands on a record that caused it."""
    match fault(error):
        case "function":
            return _raised_again(error)
        case "death":
            return WorkerKilledError(
                "the Python worker died with this record and nothing else to do, at every attempt"
            )
        case _:
            return ExpressionError(said(error))


def _raised_again(error: BaseException) -> Exception:
    """What a Python function raised, rebuilt from its stack trace, so that policies know it.

    With its causes, as far as their classes can be found here.
    """
    lines = [(a or c, b or d) for a, b, c, d in _ERROR_LINE.findall(str(error))]
    found = [(message, _rebuilt(path, message)) for path, message in lines]
    known = [made for _, made in found if made is not None]
    for cause, effect in pairwise(known):
        effect.__context__ = cause
    if found and (made := found[-1][1]) is not None and found[-1][0] in _text(made):
        return made
    unknown = FunctionError(said(error))
    unknown.__cause__ = known[-1] if known else None
    return unknown


def _rebuilt(path: str, message: str) -> Exception | None:
    module, _, name = path.rpartition(".")
    cls = getattr(sys.modules.get(module or "builtins"), name, None)
    if not (isinstance(cls, type) and issubclass(cls, Exception)):
        return None
    if issubclass(cls, Signal):
        return cls(message)
    try:
        # Not called: what else it takes, nobody knows here.
        error = cls.__new__(cls, message)
        error.args = (message,) if message else ()
    except Exception:  # noqa: BLE001 -- a user's class may do anything
        return None
    return error


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- of a class that misses what its maker gave it
        return ""


def said(error: BaseException) -> str:
    """The line of an error of Spark's that says what it is: Python's last one, Java's first."""
    return last_line(error) if fault(error) == "function" else str(error).strip().partition("\n")[0]


def _told(error: BaseException, method: str) -> str:
    ask = getattr(error, method, None)
    return str(ask() or "") if callable(ask) else ""
