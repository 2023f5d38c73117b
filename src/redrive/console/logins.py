"""Logins: how often each address has tried a wrong token lately. Guessing must not be quick."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from redrive.tuning import CONSOLE_LOGINS

_ADDRESSES: Final = 10_000


class Logins:
    """Wrong tokens and cookies of the last minute, by the address that they came from."""

    def __init__(self, timer: Callable[[], float] = monotonic) -> None:
        self._timer = timer
        self._wrong: OrderedDict[str, deque[tuple[float, bytes]]] = OrderedDict()

    def failed(self, address: str, given: str) -> None:
        """Note a wrong one; the same one again is no other guess, such as an old cookie."""
        wrong = self._wrong.pop(address, deque(maxlen=CONSOLE_LOGINS))
        self._wrong[address] = wrong
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)
        digest = hashlib.sha256(given.encode(errors="replace")).digest()
        if all(digest != known for _, known in wrong):
            wrong.append((self._timer(), digest))

    def may_try(self, address: str) -> bool:
        """Whether a token from that address is looked at now."""
        wrong = self._wrong.get(address)
        return wrong is None or len(wrong) < CONSOLE_LOGINS or self._timer() - wrong[0][0] > 60
