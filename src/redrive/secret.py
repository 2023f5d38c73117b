"""Values that are never printed: not in logs, not in error messages, not in a debugger."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"

HIDDEN: Final = (
    r"pass(word|phrase)|secret|token|credential|jaas|key\.pem|ssl_key|keystore\.key"
    r"|oauthbearer\.config|assertion\.private|access[.]?key"
)
"""Parts of names of settings whose values must not be printed; case does not matter."""
_HIDDEN: Final = re.compile(HIDDEN, re.IGNORECASE)

# PostgreSQL's two forms of an address. Stricter than libpq about unescaped characters in a URL:
# part of a password with an @ or a / would be taken for a host, and a host is printed.
_USER: Final = r"(?:[^%@/:?]|%[0-9A-Fa-f]{2})*"
_SAID: Final = r"(?:[^%@/]|%[0-9A-Fa-f]{2})*"  # a password
_HOST: Final = r"(?:\[[^\]@/]*\]|(?:[^%@/:?,\[\]]|%[0-9A-Fa-f]{2})*)(?::\d*)?"
_NAME: Final = r"(?:[^%@?]|%[0-9A-Fa-f]{2})*"
_URL: Final = re.compile(
    rf"(postgres(?:ql)?://)(?:({_USER})(:{_SAID})?@)?({_HOST}(?:,{_HOST})*(?:/{_NAME})?)"
    r"(?:\?(.*))?",
    re.DOTALL,
)
_PAIR: Final = re.compile(r"(\w+)=((?:[^%&=]|%[0-9A-Fa-f]{2})*)", re.DOTALL)
_WORD: Final = re.compile(r"\s*(\w+)\s*=\s*('(?:\\.|[^'\\])*'|(?!')(?:\\.|[^\s\\])*)\s*", re.DOTALL)
_SHOWN: Final = re.compile(
    r"host|hostaddr|port|dbname|user|passfile|sslmode|sslrootcert|sslcert|sslkey|connect_timeout"
    r"|application_name|target_session_attrs"
)
"""Only what is known to be harmless is shown: anything else may be a misspelt password."""


class Secret:
    """A string that only `reveal()` shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The string itself: for the client library that needs it, and nothing else."""
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
    """A database address: shown without its password, and not at all if it cannot be parsed."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._masked() or MASK

    @property
    def understood(self) -> bool:
        """Whether its form shows where the password is."""
        return self._masked() is not None

    def _masked(self) -> str | None:
        url = _URL.fullmatch(self._value)
        if url is None:
            return _join(_WORD, " ", self._value)
        scheme, user, password, rest, query = url.groups()
        told = scheme + ("" if user is None else f"{user}{f':{MASK}' if password else ''}@") + rest
        if query is None:
            return told
        pairs = [_join(_PAIR, "", one) for one in query.split("&")]
        return None if None in pairs else f"{told}?{'&'.join(map(str, pairs))}"


def _join(pair: re.Pattern[str], between: str, value: str) -> str | None:
    """All pairs of name and value, masked; None if there is anything else."""
    told: list[str] = []
    at = 0
    while at < len(value):
        found = pair.match(value, at)
        if found is None:
            return None
        name, given = found.groups()
        told.append(f"{name}={given if _SHOWN.fullmatch(name) and '@' not in given else MASK}")
        at = found.end()
    return between.join(told) or None


def guarded(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings, with secret values wrapped as secrets."""
    return {name: _guarded(name, value) for name, value in given.items()}


def _guarded(key: str, value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _guarded(f"{key}.{name}", inner) for name, inner in value.items()}
    if isinstance(value, str) and key == "database":
        return Dsn(value)
    if isinstance(value, str) and (key == "security.key" or is_secret(key)):
        return Secret(value)
    return value


def is_secret(name: str) -> bool:
    """Whether a setting of that name holds a secret."""
    return _HIDDEN.search(name) is not None
