"""Sources: of which text an app's modules were made, in this process.

Python imports a module once. Somebody who edits a handler and starts it again in the same process
means the new text; and so do processes that have run an older version before, as Spark's Python
workers have. The modules of an app are its own, and those beside it that were imported with it.
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
"""By the name of each module the digest of the text that it was made of."""


def own_modules(name: str) -> list[str]:
    """The app's module and those that were imported from below the same folder; nothing installed.

    Of an app that is itself installed, those of its package.
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
    """The folder from which a module was imported, for a package the one around it; or nothing."""
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
    """Take note of what the app's modules were made of, unless it is known; returns it by name."""
    found: dict[str, str] = {}
    for each in own_modules(name):
        digest = _made_of.get(each) or _digest(sys.modules[each])
        if digest:
            _made_of[each] = found[each] = digest
    return found


def forget_changed(name: str) -> None:
    """Have the app's modules imported again if the text of one of them has changed since."""
    changed = [
        each
        for each in own_modules(name)
        if each in _made_of and _digest(sys.modules[each]) not in ("", _made_of[each])
    ]
    if changed:
        log.info("%s: changed since imported; imported again", ", ".join(sorted(changed)))
        forget(own_modules(name))


def differing(wanted: Mapping[str, str]) -> list[str]:
    """The modules that are imported here, but of another text."""
    return [
        name
        for name, digest in wanted.items()
        if name in sys.modules and _made_of.get(name, digest) != digest
    ]


def forget(names: Collection[str]) -> None:
    """Have modules imported again by whoever needs them."""
    for name in names:
        module = sys.modules.pop(name, None)
        _made_of.pop(name, None)
        cached = getattr(module, "__cached__", None)
        try:
            # It is told from an older one by time, in seconds, and size: a quick edit has both.
            Path(cached or "").unlink(missing_ok=True)
        except OSError:
            pass  # somebody else's: then the time has to tell
    importlib.invalidate_caches()


def _digest(module: ModuleType) -> str:
    """Of the text as it is now; empty, if there is none."""
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    try:
        text = loader.get_source(module.__name__)  # type: ignore[union-attr]  # -- most have it
    except (AttributeError, ImportError, OSError, SyntaxError):
        return ""
    return sha256(text.encode()).hexdigest() if text else ""
