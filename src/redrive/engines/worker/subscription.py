"""Subscription: the topics that a worker reads; delay topics can be added while it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.app import App


class Subscription(Collection[str]):
    """The source topics, and all delay topics: also those that no policy of this app uses.

    Records may wait there that an earlier version parked, or a later one that was taken back
    while this worker ran. May be read from many threads.
    """

    def __init__(self, app: App, names: Callable[[], Collection[str]]) -> None:
        """`names` are the topics that exist."""
        self._app = app
        self._names = names
        self.delays: dict[str, int] = dict(app.delay_topics)
        self.grow()

    def __contains__(self, topic: object) -> bool:
        return topic in self._app.handlers or topic in self.delays

    def __iter__(self) -> Iterator[str]:
        return iter([*self._app.handlers, *self.delays])

    def __len__(self) -> int:
        return len(self._app.handlers) + len(self.delays)

    @property
    def shared_out(self) -> list[str]:
        """The topics whose partitions the group assigns; in strict order the others follow them."""
        return [*self._app.handlers] if self._app.ordering == "strict" else [*self]

    def grow(self) -> list[str]:
        """Look for delay topics that are not part of it yet, and add them; which are new."""
        found = self._app.waiting_topics(self._names())
        new = {name: delay for name, delay in sorted(found.items()) if name not in self.delays}
        self.delays = {**self.delays, **new}
        return list(new)

    def let_go(self, topic: str) -> bool:
        """Read one that is gone no more; False: this app cannot do without it."""
        if not self._app.can_do_without(topic):
            return False
        self.delays = {name: delay for name, delay in self.delays.items() if name != topic}
        return True
