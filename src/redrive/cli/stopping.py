"""Stopping: the first signal requests an orderly stop, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Whether this process has been asked to stop.

    Until something runs that needs an orderly stop, the first signal raises SystemExit.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._orderly = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {each: signal.signal(each, self._on_signal) for each in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def be_orderly(self) -> None:
        """From now on, only record the first signal."""
        self._orderly = True

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.wanted:
            os._exit(128 + number)
        self.wanted = True
        if not self._orderly:
            raise SystemExit(0)
