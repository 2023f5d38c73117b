"""Resources: what `@app.resource` opens once per process, and closes at its end."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Generator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from redrive.envelope import type_and_text
from redrive.errors import ConfigurationError, ResourceError
from redrive.threads import raise_ctrl_c

if TYPE_CHECKING:
    from redrive.app import App

_Opened = Generator[Any, None, None] | AsyncGenerator[Any, None]
_NOTHING: Final = object()

log: Final = logging.getLogger("redrive.processing")


class Resources:
    """An app's resources; `replaced` are given instead of being opened, for tests."""

    def __init__(self, app: App, replaced: Mapping[str, object] | None = None) -> None:
        self._replaced = dict(replaced or {})
        unknown = sorted(self._replaced.keys() - app.resources.keys())
        if unknown:
            raise ConfigurationError(
                f'app "{app.name}": no resource is called {", ".join(unknown)}; there are:'
                f" {', '.join(sorted(app.resources)) or 'none'}"
            )
        self._to_open = {
            name: function for name, function in app.resources.items() if name not in self._replaced
        }
        self._opened: list[tuple[str, _Opened]] = []
        self._closing = ""

    @property
    def is_async(self) -> bool:
        """Whether opening them needs an event loop."""
        return any(map(inspect.isasyncgenfunction, self._to_open.values()))

    async def open(self) -> SimpleNamespace:
        """Open them in the order of their definition; if one fails, close those that are open."""
        values = dict(self._replaced)
        for name, function in self._to_open.items():
            try:
                generator = function()
                values[name] = await _first(generator)
            except BaseException as error:
                await self._close_others(name)
                raise_ctrl_c(error)
                raise ResourceError(
                    f'resource "{name}" could not be opened: {type_and_text(error)}'
                ) from error
            self._opened.append((name, generator))
        return SimpleNamespace(**values)

    async def close(self) -> None:
        """Close them, the last one first, each even if another fails."""
        errors: list[BaseException] = []
        told: list[str] = []
        while self._opened:
            name, generator = self._opened.pop()
            self._closing = name
            try:
                await _rest(generator)
            except BaseException as error:  # noqa: BLE001 -- all are closed before any is reported
                raise_ctrl_c(error)
                errors.append(error)
                told.append(f'resource "{name}" could not be closed: {type_and_text(error)}')
        if errors:
            raise ResourceError("; ".join(told)) from errors[0]

    def leave_behind(self, seconds: float) -> None:
        """Log which of them does not close, and which ones are not closed for it."""
        others = ", ".join(f'"{name}"' for name, _ in reversed(self._opened))
        log.error(
            'resource "%s" did not close within %.0f s: it is left behind%s. Does it wait for a'
            " handler that hangs?",
            self._closing,
            seconds,
            f", and {others} with it" if others else "",
        )
        self._opened.clear()  # the one that hangs may still use them

    async def _close_others(self, name: str) -> None:
        try:
            await self.close()
        except ResourceError as error:
            log.warning('%s (while "%s" could not be opened)', error, name)


async def _first(generator: _Opened) -> object:
    """What it yields, to be used."""
    if isinstance(generator, AsyncGenerator):
        value = await anext(generator, _NOTHING)
    else:
        value = next(generator, _NOTHING)
    if value is _NOTHING:
        raise TypeError("it yields nothing: yield the resource once, and close it after that")
    return value


async def _rest(generator: _Opened) -> None:
    """Let it end."""
    if isinstance(generator, AsyncGenerator):
        value = await anext(generator, _NOTHING)
    else:
        value = next(generator, _NOTHING)
    if value is not _NOTHING:
        raise TypeError("it yields a second time: what comes after that never runs")
