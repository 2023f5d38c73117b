"""What commands print: for people or, if logs are JSON, as ordinary log lines."""

from __future__ import annotations

import io
import logging
from typing import Any, Final

import typer
from rich.console import Console

from redrive.errors import RedriveError
from redrive.logs import LogFormat, is_json

log: Final = logging.getLogger("redrive.run")
_WIDTH: Final = 1000


class _LogLines(io.StringIO):
    """A file object whose lines are logged."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = ""

    def write(self, text: str) -> int:
        """Log the lines that this completes."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            log.info("%s", line.rstrip())
        return len(text)


def terminal(**options: Any) -> Console:
    """Where a command prints: text as it is. `a:100:b` is a key, and no picture of a hundred."""
    return Console(highlight=False, emoji=False, **options)


def console_for(log_format: LogFormat) -> Console:
    """Where a command prints its progress."""
    if log_format == "json":
        return terminal(file=_LogLines(), width=_WIDTH)
    return terminal()


def say_error(error: RedriveError) -> None:
    """Print what ended the command, in one sentence."""
    if is_json():
        log.error("%s", error)
    else:
        typer.echo(f"redrive: {error}", err=True)
