"""Finding the app that `module:name` names."""

from __future__ import annotations

import importlib
import sys
import traceback
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from redrive import sources
from redrive.app import App
from redrive.errors import ConfigurationError


def load_app(target: str, folder: Path | None = None) -> App:
    """Import the module, from the working directory too, and return the app in it.

    If its text has changed since this process imported it, it is imported again.
    """
    module_name, name = _split(target)
    place = _import_path(folder)
    sources.forget_changed(module_name)
    module = _import(module_name, place)
    sources.remember(module_name)
    found = _attribute(module, name)
    if not isinstance(found, App):
        raise ConfigurationError(
            f"{target} is {_article(type(found).__name__)}, not an App{_hint(module)}"
        )
    return found


def load_object(target: str, what: str) -> Any:
    """Import the module, and return whatever has that name in it: a function, a dict."""
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise ConfigurationError(f"{target} does not name {what}: write module:name")
    module = _import(module_name, _import_path(None))
    return _attribute(module, name, f": {target} should be {what}{_functions(module)}")


def _import_path(folder: Path | None) -> str:
    """The working directory, from which modules are imported too."""
    place = str(folder or Path.cwd())
    if place not in sys.path:
        sys.path.insert(0, place)
    return place


def target_of(app: App) -> str:
    """How a command would name an app that a program has: for sentences that say what to run."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{_importable_name(module)}:{name}"
    return "module:app"


def _importable_name(module: ModuleType) -> str:
    if module.__name__ != "__main__":
        return module.__name__
    if module.__spec__ is not None:  # as it was named to `python -m`
        return module.__spec__.name
    return Path(module.__file__ or "module").stem


def _split(target: str) -> tuple[str, str]:
    module_name, colon, name = target.partition(":")
    if module_name == "__main__":
        raise ConfigurationError(
            f"{target}: worker processes cannot import an app from __main__: move it to its own"
            " module, and name that"
        )
    if module_name.endswith(".py") or "/" in module_name:
        dotted = ".".join(Path(module_name).with_suffix("").parts).strip(".")
        raise ConfigurationError(
            f"{target}: write the module as in an import, not as a file: {dotted}:{name or 'app'}"
        )
    if not colon or not module_name or not name:
        raise ConfigurationError(
            f"{target or 'nothing'} does not name an app: write module:name, such as shop:app"
        )
    return module_name, name


def _import(name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only for this module or a package around it: a missing import inside it is another error.
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigurationError(
                f"there is no module {error.name}, neither installed nor in {place}: run redrive"
                " in the module's directory, or install it"
            ) from None
        raise _failed(name, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the user's module raises
        raise _failed(name, error) from None


def _failed(name: str, error: BaseException) -> ConfigurationError:
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list(
        [frame for frame in shown.stack if not _is_machinery(frame)]
    )
    return ConfigurationError(f"{name} cannot be imported:\n{''.join(shown.format()).rstrip()}")


def _is_machinery(frame: traceback.FrameSummary) -> bool:
    """Whether a frame is redrive's or the import system's: only the user's own frames help."""
    return frame.filename in (__file__, importlib.__file__) or frame.filename.startswith(
        "<frozen importlib"
    )


def _attribute(module: ModuleType, path: str, hint: str | None = None) -> object:
    found: object = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(
                f"module {module.__name__} has no {path}{_hint(module) if hint is None else hint}"
            ) from None
    return found


def _functions(module: ModuleType) -> str:
    own = (name for name, value in vars(module).items() if _is_own(value, module))
    names = ", ".join(f"{module.__name__}:{name}" for name in sorted(own))
    return f"; its functions: {names}" if names else ""


def _is_own(value: object, module: ModuleType) -> bool:
    return isfunction(value) and value.__module__ == module.__name__


def _hint(module: ModuleType) -> str:
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    if not apps:
        return ': it has no App; create one, such as app = App("shop")'
    return f"; its apps: {', '.join(f'{module.__name__}:{name}' for name in apps)}"


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
