"""Sources: which source text an app's modules were imported from, in this process.

Python imports a module once. A user who edits a handler and starts it again in the same process
means the new text; the same goes for processes that ran an older version before, such as Spark's
Python workers. The modules of an app are its own, and those next to it that it imported.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Final

log: Final = logging.getLogger("redrive")

_INSTALLED: Final = ("site-packages", "dist-packages")
_NOT_ITS_OWN: Final = ("redrive", "__main__")
_made_of: Final[dict[str, str]] = {}
"""The digest of the text that each module was imported from, by module name."""


def own_modules(name: str) -> list[str]:
    """The app's module and those imported from below the same folder; nothing installed.

    For an app that is itself installed, those of its package.
    """
    folder = folder_of(name)
    if not folder:
        return []
    package = name.partition(".")[0]
    return [
        other
        for other, module in list(sys.modules.items())
        if (top := other.partition(".")[0]) == package
        or (top not in _NOT_ITS_OWN and _is_below(module, folder + os.sep))
    ]


def folder_of(name: str) -> str:
    """The folder from which a module was imported (for a package, the one around it), or None."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return ""
    path = Path(file).absolute()
    return str(path.parents[name.count(".") + (path.name == "__init__.py")])


def _is_below(module: ModuleType, folder: str) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.startswith(folder):
        return False
    return not any(f"{os.sep}{each}{os.sep}" in file for each in _INSTALLED)


def remember(name: str) -> dict[str, str]:
    """Remember the texts that the app's modules were imported from; returns digests by name."""
    found: dict[str, str] = {}
    for each in own_modules(name):
        digest = _made_of.get(each) or _digest(sys.modules[each])
        if digest:
            _made_of[each] = found[each] = digest
    return found


def forget_changed(name: str) -> None:
    """Have the app's modules imported again if the text of one of them has changed."""
    changed = [
        each
        for each in own_modules(name)
        if each in _made_of and _digest(sys.modules[each]) not in ("", _made_of[each])
    ]
    if changed:
        log.info(
            "changed since they were imported, importing again: %s", ", ".join(sorted(changed))
        )
        forget(own_modules(name))


def differing(wanted: Mapping[str, str]) -> list[str]:
    """The modules that are imported here, but from another text."""
    return [
        name
        for name, digest in wanted.items()
        if name in sys.modules and _made_of.get(name, digest) != digest
    ]


def forget(names: Collection[str]) -> None:
    """Have modules imported again when they are next needed."""
    for name in names:
        module = sys.modules.pop(name, None)
        _made_of.pop(name, None)
        cached = getattr(module, "__cached__", None)
        try:
            # Bytecode is matched by time, in seconds, and size: after a quick edit both are equal.
            Path(cached or "").unlink(missing_ok=True)
        except OSError:
            pass  # not ours to delete: then the time has to do
    importlib.invalidate_caches()


def _digest(module: ModuleType) -> str:
    """The digest of the current text; empty if there is none."""
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    try:
        text = loader.get_source(module.__name__)  # type: ignore[union-attr]  # -- most have it
    except (AttributeError, ImportError, OSError, SyntaxError):
        return ""
    return sha256(text.encode()).hexdigest() if text else ""
