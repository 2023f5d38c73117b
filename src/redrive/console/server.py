"""Server: which address shows what, and who may see it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final, TypeAlias

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from redrive.console import changes, live, views
from redrive.console.access import COOKIE, Visitor
from redrive.console.asking import Asking, Console
from redrive.console.forms import Fields, fields_of
from redrive.console.limits import Limits
from redrive.errors import ConfigurationError, RedriveError

log: Final = logging.getLogger("redrive.console")
_STATIC: Final = {"console.css": "text/css", "console.js": "text/javascript"}


View: TypeAlias = Callable[[Asking], Response | Awaitable[Response]]
_OF_LETTERS: Final = (views.letter, views.letters)
"""They call code of the app, which may hang."""
_FROM_MEMORY: Final = (views.start, views.flow, views.groups, views.plan)
"""They ask nobody: however slow brokers are, they are answered at once."""


def server(console: Console) -> Limits:
    """The console as a web application."""

    @asynccontextmanager
    async def running(_app: Starlette) -> AsyncIterator[None]:
        for board in console.boards.values():
            board.start()
        try:
            yield
        finally:
            for board in console.boards.values():
                await run_sync(board.close)

    shown = _answering(console, None)
    changed = _answering(console, console.access.refusal)
    sent = _answering(console, console.access.foreign)
    of_app = "/apps/{app}"
    routes = [
        Route("/static/{name}", _static),
        Route("/login", _login(console), methods=["GET", "POST"]),
        Route("/logout", sent(changes.log_out), methods=["POST"]),
        Route("/", shown(views.start)),
        Route(of_app, shown(views.flow)),
        Route(f"{of_app}/live/{{part}}", shown(live.events)),
        Route(f"{of_app}/dead", shown(views.groups)),
        Route(f"{of_app}/dead/letters", shown(views.letters)),
        Route(f"{of_app}/dead/letter", shown(views.letter)),
        Route(f"{of_app}/dead/edit", shown(views.edit)),
        Route(f"{of_app}/dead/plan", changed(changes.plan), methods=["POST"]),
        Route(f"{of_app}/plans/{{plan}}", shown(views.plan)),
        Route(f"{of_app}/plans/{{plan}}/do", changed(changes.do_plan), methods=["POST"]),
        Route(f"{of_app}/jobs/{{job}}", shown(views.job)),
        Route(f"{of_app}/jobs/{{job}}/{{verb}}", changed(changes.steer), methods=["POST"]),
        Route(f"{of_app}/parked", shown(views.parked)),
        Route(f"{of_app}/parked/plan", changed(changes.plan_parked), methods=["POST"]),
        Route(f"{of_app}/parked/do", changed(changes.do_parked), methods=["POST"]),
        Route(f"{of_app}/audit", shown(views.audit)),
    ]
    app = Starlette(routes=routes, lifespan=running)
    return Limits(app, console.access, console.refusals)


def _answering(console: Console, refusal: Callable[..., str] | None) -> Callable[[View], Any]:
    """Answer those who may look; where something is changed, those who are not refused it."""

    def with_visitor(view: View) -> Any:
        async def answer(request: Request) -> Response:
            visitor = _visitor(console, request)
            if isinstance(visitor, Response):
                return visitor
            try:
                fields = await _fields(request)
            except ConfigurationError as error:
                return _said(Asking(console, request, visitor, {}), 400, str(error))
            key = (fields.get("form_key") or [""])[0]
            why = "" if refusal is None else refusal(visitor, request.headers, key)
            if why:
                return _said(Asking(console, request, visitor, {}), 403, why)
            return await _answered(view, Asking(console, request, visitor, fields))

        return answer

    return with_visitor


async def _answered(view: View, asking: Asking) -> Response:
    app = asking.request.path_params.get("app")
    if app is not None and app not in asking.console.boards:
        return _said(asking, 404, "the console does not show this app")
    try:
        if view in (live.events, changes.log_out):
            return await view(asking)
        threads = _threads(asking.console, view)
        return await run_sync(view, asking, limiter=threads)  # type: ignore[arg-type]  # -- and these are not
    except RedriveError as error:
        # The sentence may quote what was sent, which the audit page does not keep.
        return _said(asking, 400, str(error), noted=f"that cannot be done ({type(error).__name__})")


def _threads(console: Console, view: View) -> CapacityLimiter | None:
    """What it is run in, so that others need not wait for it; None: the threads of all others."""
    if view in _OF_LETTERS:
        return console.of_letters
    return None if view in _FROM_MEMORY else console.of_brokers


def _said(asking: Asking, status: int, said: str, noted: str = "") -> Response:
    """A sentence on a page; as text for programs. What is refused is on the audit page."""
    why = f"{asking.visitor.name}: {noted or said}"
    asking.console.refusals.add(asking.request.scope, status, why)
    if not asking.visitor.by_cookie:
        return PlainTextResponse(said + "\n", status)
    known = asking.request.path_params.get("app") in asking.console.boards
    if not known:
        asking.request.path_params.pop("app", None)
    return asking.page("said.html", status, said=said)


async def _fields(request: Request) -> Fields:
    """What a form or an address says."""
    if request.method == "POST":
        return fields_of((await request.body()).decode(errors="replace"))
    return fields_of(request.url.query)


def _visitor(console: Console, request: Request) -> Visitor | Response:
    """Who asks; an answer if that is nobody known. Wrong tokens count, wherever they are sent."""
    client = _client(request)
    visitor = console.access.visitor(request.headers, client)
    if visitor is not None:  # however many wrong ones others have sent from the same address
        return visitor
    given = console.access.given(request.headers, client)
    if given and not console.logins.may_try(client):
        console.refusals.add(request.scope, 429, "too many wrong tokens")
        return PlainTextResponse("too many wrong tokens: wait a minute\n", 429)
    if given:
        console.logins.failed(client, given)
    return _unknown(console, request)


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _unknown(console: Console, request: Request) -> Response:
    console.refusals.add(request.scope, 401, "no token, or a wrong one")
    if "text/html" in request.headers.get("accept", "") and request.method == "GET":
        return RedirectResponse("/login", 303)
    return PlainTextResponse("a token is needed: log in, or send Authorization: Bearer\n", 401)


def _login(console: Console) -> Any:
    async def login(request: Request) -> Response:
        try:
            fields = await _fields(request)
        except ConfigurationError as error:
            return console.pages.page("login.html", 400, said=str(error))
        client, token = _client(request), (fields.get("token") or [""])[0]
        if not token:
            return console.pages.page("login.html", said="")
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            # Before it counts: another page could use up the visitor's guesses.
            console.refusals.add(request.scope, 403, "a token from another site")
            return console.pages.page(
                "login.html", 403, said="The token came from another site: type it here."
            )
        role = console.access.role_of(token)
        if role is None and not console.logins.may_try(client):
            console.refusals.add(request.scope, 429, "too many wrong tokens")
            return console.pages.page(
                "login.html", 429, said="Too many wrong tokens: wait a minute."
            )
        if role is None:
            console.logins.failed(client, token)
            console.refusals.add(request.scope, 401, "a wrong token")
            return console.pages.page("login.html", 401, said="This token is not known.")
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, console.access.cookie(role), httponly=True, samesite="strict", secure=secure
        )
        return answer

    return login


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        return PlainTextResponse("not found\n", 404)
    data = files("redrive.console").joinpath("static", name).read_bytes()
    return Response(data, media_type=_STATIC[name], headers={"cache-control": "max-age=3600"})
