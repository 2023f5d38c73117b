"""Ports on this machine's loopback."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection

from redrive.errors import LocalError

HOST = "127.0.0.1"
# Below the ephemeral range, so that a port kept for the next start is not taken by an outgoing
# connection in between.
_RANGE = range(20000, 32000)


def problem(port: int) -> str | None:
    """Why a server cannot listen on `port`; None if it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OverflowError:
            return "it is not a port number"
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "another process uses it"
            return error.strerror or "access to it is refused"
    return None


def free(taken: Collection[int] = ()) -> int:
    """A free port, chosen at random so that stacks started together do not collide."""
    for port in random.sample(_RANGE, 200):
        if port not in taken and problem(port) is None:
            return port
    raise LocalError(f"No free port found on {HOST} between {_RANGE.start} and {_RANGE.stop}.")


def require(port: int, option: str) -> int:
    if why := problem(port):
        raise LocalError(
            f"Port {port} on {HOST} cannot be used ({why}); choose another with {option}."
        )
    return port


def answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
