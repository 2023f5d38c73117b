"""Headers whose names are not UTF-8, as far as the client lets us see them.

Kafka accepts any bytes as the name of a header. confluent_kafka decodes them: the first call of
headers() raises a SystemError whose cause has the bytes of a name that is not UTF-8 (of the last
one, if there are several). The second call returns the headers with a hole in place of each such
name, and touching a hole crashes the process.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from confluent_kafka import Message

from redrive.record import Headers

_NAME_AND_VALUE: Final = 2
_UNKNOWN: Final = "\ufffd"
"""The name of a header whose bytes are not known."""


def headers_of(message: Message, error: SystemError | None = None) -> Headers:
    r"""All headers of a message; bytes of a name that are not text are written as `\xff`.

    `error` is what an earlier call raised, if it did.
    """
    try:
        found = message.headers()
    except SystemError as raised:
        error = raised
        found = message.headers()
    headers: list[tuple[str, bytes | None]] = []
    name = _name_in(error)
    pairs: list[Any] = list(found or ())
    for pair in reversed(pairs):
        # A tuple reports its referents: for a pair with a hole, only the value.
        there = gc.get_referents(pair)
        if len(there) == _NAME_AND_VALUE:
            headers.append(pair)
        else:
            headers.append((name, there[0]))
            name = _UNKNOWN  # only the last name is known
    return tuple(reversed(headers))


def _name_in(error: SystemError | None) -> str:
    cause = None if error is None else error.__cause__
    if not isinstance(cause, UnicodeDecodeError):
        return _UNKNOWN
    return cause.object.decode(errors="backslashreplace")
