"""Asking: one request to the console, and what it is answered from."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response

from redrive.console.access import Access, Visitor
from redrive.console.board import Board
from redrive.console.forms import Fields
from redrive.console.logins import Logins
from redrive.console.refusals import Refusals
from redrive.console.rendering import Pages
from redrive.tuning import CONSOLE_ASKING, CONSOLE_LETTER_PAGES


@dataclass
class Console:
    """One console: the apps that it shows, and the rules for who may see them."""

    boards: Mapping[str, Board]
    access: Access
    fixes: Sequence[str] = ()
    """Functions that may mend values: `module:function`, named when the console was started."""
    resources: Mapping[str, object] | None = None
    """What takes the place of the app's resources when letters are tried."""
    pages: Pages = field(default_factory=Pages)
    refusals: Refusals = field(default_factory=Refusals)
    logins: Logins = field(default_factory=Logins)
    rendered: dict[tuple[str, str, str], tuple[object, Future[str]]] = field(default_factory=dict)
    """Parts of pages, rendered or being rendered, with the version that they are of."""
    viewers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By name and address of a visitor: how many of their pages are notified of changes now."""
    of_letters: CapacityLimiter = field(
        default_factory=lambda: CapacityLimiter(CONSOLE_LETTER_PAGES)
    )
    """Threads of pages that show letters: they wait for code of the app."""
    of_brokers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(CONSOLE_ASKING))
    """Threads of all that ask brokers: they may be away."""


@dataclass(frozen=True)
class Asking:
    """One request: who asks for what."""

    console: Console
    request: Request
    visitor: Visitor
    fields: Fields

    @property
    def board(self) -> Board:
        """The app that it is about."""
        return self.console.boards[self.request.path_params["app"]]

    def page(self, name: str, status: int = 200, /, **values: Any) -> Response:
        """A page, with what all pages have."""
        app = self.request.path_params.get("app")
        return self.console.pages.page(
            name,
            status,
            visitor=self.visitor,
            form_key=self.console.access.form_key(self.visitor),
            apps=[*self.console.boards],
            app=app,
            board=self.console.boards.get(app) if app else None,
            path=self.request.url.path,
            **values,
        )
