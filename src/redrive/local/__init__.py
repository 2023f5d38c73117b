"""A real Kafka and PostgreSQL on this machine, as child processes.

`stack()` is what programs and tests use; `redrive local` is the same on the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redrive.local.stacks import Stack, stack

__all__ = ["Stack", "stack"]


def __getattr__(name: str) -> Any:
    # Imported late: jars and Java can be checked even if the extra `local` is not installed.
    if name in __all__:
        from redrive.local import stacks

        return getattr(stacks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
