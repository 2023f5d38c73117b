"""Resources: what `@app.resource` opens once per process, and closes at its end."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from redrive.app import App

_Opened = Generator[Any, None, None] | AsyncGenerator[Any, None]
_T = TypeVar("_T")


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
        self._opened: list[_Opened] = []

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
            except Exception as error:
                await self.close()
                raise ConfigurationError(
                    f'resource "{name}" could not be opened: {type(error).__name__}: {error}'
                ) from error
            self._opened.append(generator)
        return SimpleNamespace(**values)

    async def close(self) -> None:
        """Close them, the last one first, each even if another fails."""
        errors: list[Exception] = []
        while self._opened:
            try:
                await _rest(self._opened.pop())
            except Exception as error:  # noqa: BLE001 -- all are closed before any is reported
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("closing resources", errors)


async def _first(generator: _Opened) -> object:
    if isinstance(generator, AsyncGenerator):
        return await anext(generator)
    return next(generator)


async def _rest(generator: _Opened) -> None:
    if isinstance(generator, AsyncGenerator):
        await anext(generator, None)
    else:
        next(generator, None)


def without_loop(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits: sync resources need no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # -- StopIteration is not generic
    coroutine.close()
    raise AssertionError("a sync resource waited for an event loop")
