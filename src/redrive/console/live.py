"""Live: tells the pages that are open what has changed, by server-sent events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from anyio.to_thread import run_sync
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from redrive.console.asking import Asking, Console
from redrive.console.board import Board
from redrive.console.parts import PARTS
from redrive.errors import RedriveError
from redrive.tuning import CONSOLE_LIVE, CONSOLE_LIVE_EACH

_EVERY: Final = 1.0
_KEPT: Final = 200
_QUIET: Final = 15
"""Seconds of silence after which a line says that the connection is there."""


async def events(asking: Asking) -> Response:
    """A stream of one part of a page, each time it has changed."""
    console, part = asking.console, asking.request.path_params["part"]
    if part not in PARTS:
        return PlainTextResponse("there is no such part\n", 404)
    client = asking.request.client
    viewer = (asking.visitor.name, client.host if client else "")
    if console.viewers.total() >= CONSOLE_LIVE or console.viewers[viewer] >= CONSOLE_LIVE_EACH:
        return PlainTextResponse("too many viewers: reload the page instead\n", 503)
    name = (asking.fields.get("name") or [""])[0]
    stream = _stream(console, asking.board, viewer, part, name)
    return StreamingResponse(stream, media_type="text/event-stream")


async def _stream(
    console: Console, board: Board, viewer: tuple[str, str], part: str, name: str
) -> AsyncIterator[str]:
    console.viewers[viewer] += 1
    try:
        version: object = None
        quiet = 0.0
        while True:
            if version != board.version:
                version = board.version
                yield _event(await rendered(console, board, part, name, version))
                quiet = 0.0
            elif quiet >= _QUIET:
                yield ": still here\n\n"
                quiet = 0.0
            await asyncio.sleep(_EVERY)
            quiet += _EVERY
    finally:
        console.viewers[viewer] -= 1
        console.viewers += Counter()  # without those who have gone


async def rendered(console: Console, board: Board, part: str, name: str, version: object) -> str:
    """Rendered once for all viewers of the same version."""
    key = (board.name, part, name)
    kept = console.rendered.get(key)
    if kept is None or kept[0] != version or _has_failed(kept[1]):
        if len(console.rendered) > _KEPT:
            console.rendered.clear()
        rendering = asyncio.ensure_future(_render(console, board, part, name))
        console.rendered[key] = kept = (version, rendering)
    return await asyncio.shield(kept[1])  # a viewer who goes does not end it for the others


async def _render(console: Console, board: Board, part: str, name: str) -> str:
    try:
        return await run_sync(PARTS[part], console, board, name)
    except RedriveError as error:
        return console.pages.part("part_said.html", said=str(error))


def _has_failed(rendering: asyncio.Future[str]) -> bool:
    if not rendering.done():
        return False
    return rendering.cancelled() or rendering.exception() is not None


def _event(html: str) -> str:
    lines = "".join(f"data: {line}\n" for line in html.splitlines())
    return f"{lines}\n"
