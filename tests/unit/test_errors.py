"""The tree of errors is drawn once, and it is drawn as it is."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import redrive
from redrive import RedriveError, errors

API = Path(__file__).parents[2] / "docs/reference/api.md"
NOT_TO_BE_IMPORTED = ("redrive.__main__", "redrive.prove.shop")
"""What begins to run, or refuses to be anything but run."""
LINE = re.compile(r"((?:│   |    )*)[├└]── (\w+) +(.+?)(?: \[([\w.]+)\])?")


def defined():
    """All classes of errors that redrive has, but those that are private to a module."""
    for module in pkgutil.walk_packages(redrive.__path__, "redrive."):
        if module.name not in NOT_TO_BE_IMPORTED:
            importlib.import_module(module.name)
    found, waiting = set(), [RedriveError]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__module__.startswith("redrive.") and not cls.__name__.startswith("_"):
            found.add(cls)
    return found - {RedriveError}


def drawn():
    """Name, parent, first words and module of each line."""
    above = ["RedriveError"]
    tree = errors.__doc__.partition("RedriveError\n")[2].partition("```")[0]
    for line in tree.splitlines():
        indent, name, words, module = LINE.fullmatch(line).groups()
        above = [*above[: len(indent) // 4 + 1], name]
        yield name, above[-2], words, module or "errors"


def first_words(cls, words):
    """As many words of its docstring as are drawn."""
    said = " ".join((cls.__doc__ or "").split())
    return re.match(rf"{re.escape(words)}(?!\w)|", said)[0]


def test_the_drawing_has_each_error_once_with_its_parent_its_words_and_its_place():
    lines = list(drawn())
    classes = {cls.__name__: cls for cls in defined()}
    assert sorted(name for name, *_ in lines) == sorted(classes)
    assert len(classes) == len(defined()), "two errors have one name"
    wrong = [
        name
        for name, parent, words, module in lines
        if classes[name].__bases__[0].__name__ != parent
        or first_words(classes[name], words) != words
        or not f".{classes[name].__module__}".endswith(f".{module}")
    ]
    assert wrong == []


def public():
    """The table of the manual: public names, and when one meets them."""
    text = API.read_text(encoding="utf-8").partition("\n### Errors\n")[2].partition("\n::: ")[0]
    return re.findall(r"^\| `(redrive[\w.]*)\.(\w+)` \| (.+) \|$", text, re.MULTILINE)


def test_the_manual_names_errors_by_public_names():
    shown = public()
    assert len(shown) > 20
    for module, name, meaning in shown:
        owner = importlib.import_module(module)
        assert name in getattr(owner, "__all__", dir(owner))
        assert issubclass(getattr(owner, name), RedriveError)
        assert meaning


@pytest.mark.parametrize(
    "module",
    [
        "redrive",
        "redrive.errors",
        "redrive.worker",
        "redrive.spark",
        "redrive.dead",
        "redrive.rewind",
    ],
)
def test_the_manual_names_all_errors_that_are_public(module):
    owner = importlib.import_module(module)
    exported = {
        value
        for name in getattr(owner, "__all__", dir(owner))
        if isinstance(value := getattr(owner, name), type) and issubclass(value, RedriveError)
    }
    named = {getattr(importlib.import_module(each), name) for each, name, _ in public()}
    assert exported <= named
