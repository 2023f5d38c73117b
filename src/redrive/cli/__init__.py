"""The `redrive` command: one file per verb."""

from __future__ import annotations

import signal
import sys

from redrive.errors import RedriveError


def main() -> None:
    """Run the command; redrive's own errors are shown as one sentence, not a stack trace."""
    try:
        # Only now: imports take a moment, in which Ctrl-C must not show a stack trace either.
        from redrive.cli.commands import app

        app()
    except RedriveError as error:
        from redrive.cli.output import say_error

        say_error(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
