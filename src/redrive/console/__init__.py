"""The console: a web page that shows what apps are doing, what waits and what died.

    console = redrive.console.open_console([redrive.console.Watched(app, settings)])
    redrive.console.serve(console, port=8484)

It stands on `redrive.dead` and on offsets, and has no state of its own: stopping it stops nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from redrive.console.access import Access, Proxy
from redrive.console.asking import Console
from redrive.console.board import Board
from redrive.console.endpoints import Endpoints
from redrive.console.fetching import checked
from redrive.console.serving import serve
from redrive.console.watched import Watched
from redrive.errors import ConfigurationError
from redrive.secret import Secret
from redrive.tuning import CONSOLE_WARN_AFTER

__all__ = ["Access", "Console", "Proxy", "Watched", "new_access", "open_console", "serve"]

TOKEN_LENGTH: Final = 16
"""Characters that a token must have at least: wrong ones are slowed down, right ones never."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def new_access(
    change: str | None = None,
    read: str | None = None,
    hosts: Sequence[str] = (),
    proxy: Proxy | None = None,
) -> Access:
    """Who may see and change what; tokens that are not given are made up."""
    _check_tokens(change, read)
    return Access(
        change=Secret(change or secrets.token_urlsafe(24)),
        read=Secret(read or secrets.token_urlsafe(24)),
        hosts=(*_LOOPBACK, *hosts),
        proxy=proxy,
    )


def _check_tokens(change: str | None, read: str | None) -> None:
    problems = [
        f"the token for {what} has fewer than {TOKEN_LENGTH} characters, and could be guessed:"
        " `openssl rand -base64 24` makes a good one"
        for what, token in (("changing", change), ("looking", read))
        if token and len(token) < TOKEN_LENGTH
    ]
    if change and change == read:
        problems.append("the tokens for looking and for changing are the same: choose another one")
    if problems:
        raise ConfigurationError(problems)


def open_console(
    apps: Sequence[Watched],
    access: Access | None = None,
    *,
    watch: Sequence[str] = (),
    fixes: Sequence[str] = (),
    resources: Mapping[str, object] | None = None,
    prometheus: str | None = None,
    warn_after: int = CONSOLE_WARN_AFTER,
) -> Console:
    """A console of these apps.

    `watch` are addresses where their runs serve metrics, `prometheus` one where the past is known;
    `warn_after`: for how many milliseconds a letter may wait for a decision without a warning.
    """
    address = None if prometheus is None else checked("--prometheus", prometheus)
    # Each board asks by itself: lateness is what was added since the board's own last look.
    boards = {each.name: Board(each, Endpoints(watch), address, warn_after) for each in apps}
    return Console(boards, access or new_access(), tuple(fixes), resources)
