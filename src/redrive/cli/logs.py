"""Where redrive's own log lines go while a command runs: stderr, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

LogFormat = Literal["text", "json"]
_OWN: Final = (
    "app",
    "topic",
    "partition",
    "offset",
    "id",
    "attempt",
    "outcome",
    "reason",
)
"""What a line may tell besides its text."""


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        to_stderr(self.format(record))


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"redrive: {record.getMessage()}"


class JsonLines(logging.Formatter):
    """One JSON object per line, with what is known of the record that the line is about."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: getattr(record, name) for name in _OWN if hasattr(record, name)}
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def to_stderr(line: str) -> None:
    """Print a line where errors go; a picture in a terminal makes room for it."""
    sys.stderr.write(line + "\n")


def log_to_stderr(kind: LogFormat = "text") -> None:
    """Show redrive's own lines, and of librdkafka's only the worst: troubles are told once."""
    log = logging.getLogger("redrive")
    handler = next((each for each in log.handlers if isinstance(each, _ToStderr)), None)
    if handler is None:
        handler = _ToStderr()
        log.addHandler(handler)
    handler.setFormatter(JsonLines() if kind == "json" else _Text())
    log.setLevel(logging.INFO)
    logging.getLogger("redrive.kafka").setLevel(logging.CRITICAL)
