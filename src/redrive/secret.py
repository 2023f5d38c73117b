"""Values that are never printed: not in logs, not in error messages, not in a debugger's list."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_SECRET_NAME: Final = re.compile(
    r"pass(word|phrase)|secret|token|credential|jaas|key\.pem|ssl_key|keystore\.key"
    r"|oauthbearer\.config|assertion\.private",
    re.IGNORECASE,
)
_IN_URL: Final = re.compile(r"(://[^:@/?\s]*:).*(@)", re.DOTALL)
_IN_QUERY: Final = re.compile(r"([?&](?:ssl)?password=)[^&]*", re.IGNORECASE)
_IN_WORDS: Final = re.compile(
    r"(\b(?:ssl)?password\s*=\s*)('(?:\\.|[^'\\])*'?|\S+)", re.IGNORECASE | re.DOTALL
)


class Secret:
    """A text that only `reveal()` shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself: for the client library that needs it, and for nothing else."""
        return self._value

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class Dsn(Secret):
    """A database address: shown with its password masked."""

    __slots__ = ()

    def __str__(self) -> str:
        if "://" in self._value:
            return _IN_QUERY.sub(rf"\1{MASK}", _IN_URL.sub(rf"\1{MASK}\2", self._value))
        return _IN_WORDS.sub(rf"\1{MASK}", self._value)


def is_secret(name: str) -> bool:
    """Whether a setting of that name holds something that must not be printed."""
    return _SECRET_NAME.search(name) is not None
