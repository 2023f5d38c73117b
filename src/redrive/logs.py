"""Log lines of the processes that redrive runs: on stderr, as text or as JSON.

The handler is the root logger's, so that redrive's own lines, those of `ctx.log` and those of the
user's own loggers look the same. What is logged is untrusted: exceptions quote their input. In
text, continuation lines are indented and control characters are escaped, so that no record can fake
a log line or move a terminal's cursor; JSON escapes by itself.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from time import monotonic
from typing import Final, Literal, TypedDict

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

TRACE: Final = 16_384
"""The most characters of a stack trace."""
_QUIET: Final = 60.0
_REMEMBERED: Final = 1000
_INDENT: Final = "    "
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""What terminals interpret, or readers take as a line end; except tabs and newlines."""
_FOREIGN: Final = re.compile(r"\S+Z ([A-Z]+) (spark\.\S+): (.*)")
"""How log4j2.properties has Spark write it, in the format of our own lines."""
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOISY: Final = {"py4j": logging.WARNING}
"""Loggers of other packages that are too chatty, and their level."""


class LogOptions(TypedDict, total=False):
    """How to log."""

    log_level: LogLevel
    log_format: LogFormat


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            to_stderr(self.format(record))
        except Exception:  # noqa: BLE001 -- as logging's own handlers: a line must not end anything
            self.handleError(record)


class TextLines(logging.Formatter):
    """One line with time, level and logger; further lines are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        text = escaped(record.getMessage())
        lines = [f"{_time(record)} {record.levelname} {record.name}: {text}{_about(record, text)}"]
        lines += [escaped(each) for each in _traces(self, record).values()]
        return "\n".join(lines).replace("\n", f"\n{_INDENT}")


class JsonLines(logging.Formatter):
    """One JSON object per line, with all that is known about its record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {name: value for name, value in vars(record).items() if name not in _PLAIN}
        return json.dumps(
            told | {name: more[name] for name in more if name not in told} | _traces(self, record),
            default=repr,
        )


class Repeats:
    """Filters repetitions: the same message passes once a minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}

    def is_news(self, text: str) -> bool:
        """Whether it should be logged; if so, it counts as logged."""
        now = self._clock()
        if now - self._said.get(text, -_QUIET) < _QUIET:
            return False
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said[text] = now
        return True


def log_to_stderr(
    log_level: LogLevel = "info", log_format: LogFormat = "text", *, only_first: bool = False
) -> None:
    """Have all loggers of this process write to stderr; the last call wins.

    With `only_first`, not if somebody has configured the root logger before.
    Of librdkafka's lines, only the worst are shown unless all are wanted: redrive itself reports
    what is in the way, once.
    """
    root = logging.getLogger()
    handler = next((each for each in root.handlers if isinstance(each, _ToStderr)), None)
    if handler is None and root.handlers and only_first:
        return
    if handler is None:
        handler = _ToStderr()
        root.addHandler(handler)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root.setLevel(log_level.upper())
    for name, level in _NOISY.items():
        logging.getLogger(name).setLevel(level)
    quiet = logging.NOTSET if log_level == "debug" else logging.CRITICAL
    logging.getLogger("redrive.kafka").setLevel(quiet)


def is_json() -> bool:
    """Whether the lines of this process are JSON."""
    return any(
        isinstance(each, _ToStderr) and isinstance(each.formatter, JsonLines)
        for each in logging.getLogger().handlers
    )


def foreign_line(line: str) -> None:
    """Print a line of another program, such as Spark; as JSON if our lines are."""
    if is_json() and not line.startswith("{"):
        found = _FOREIGN.match(line)
        level, name, text = found.groups() if found else ("INFO", "spark", line)
        made = logging.makeLogRecord({"name": name, "levelname": level, "msg": text})
        line = JsonLines().format(made)
    to_stderr(line)


def to_stderr(line: str) -> None:
    """Print a line to stderr; a live view in a terminal makes room for it."""
    sys.stderr.write(line + "\n")


def escaped(text: str) -> str:
    """The text without control characters; newlines stay."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """The text as one line."""
    return escaped(text).replace("\n", "\\n")


def shortened(trace: str, limit: int = TRACE) -> str:
    """A stack trace, shortened to its beginning and, above all, its end."""
    if len(trace) <= limit:
        return trace
    head, tail = limit // 4, limit - limit // 4
    left_out = len(trace) - head - tail
    return f"{trace[:head]}\n... {left_out} characters ...\n{trace[-tail:]}"


def _time(record: logging.LogRecord) -> str:
    told = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def _about(record: logging.LogRecord, text: str) -> str:
    """The Kafka record that a line is about, unless the line already names it."""
    told = vars(record)
    if not {"topic", "partition", "offset"} <= told.keys():
        return ""
    place = one_line(f"{told['topic']}[{told['partition']}]@{told['offset']}")
    if place in text:
        return ""
    more = [f"{name} {told[name]}" for name in ("attempt", "id") if name in told]
    return f" ({', '.join([place, *map(one_line, more)])})"


def _traces(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, str]:
    return dict(_each_trace(formatter, record))


def _each_trace(
    formatter: logging.Formatter, record: logging.LogRecord
) -> Iterator[tuple[str, str]]:
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    if record.exc_text:
        yield "trace", shortened(record.exc_text)
    if record.stack_info:
        yield "stack", shortened(formatter.formatStack(record.stack_info))
