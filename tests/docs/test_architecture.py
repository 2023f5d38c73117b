"""The tree of docs/architecture.md names every module, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
AS_A_WHOLE = ("cli", "demo", "local", "prove", "testing")
"""Rooms that the tree does not list file by file."""


def listed() -> set[str]:
    """Paths below src/redrive, by the indentation of the tree."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    tree = text.partition("```\nsrc/redrive/\n")[2].partition("```")[0]
    found: set[str] = set()
    rooms: dict[int, str] = {}
    for line in tree.splitlines():
        depth = len(line) - len(line.lstrip())
        room = re.match(r" *([a-z/]+/)( |$)", line)
        if room:
            parent = next((rooms[each] for each in sorted(rooms, reverse=True) if each < depth), "")
            rooms = {each: name for each, name in rooms.items() if each < depth}
            rooms[depth] = parent + room[1]
        where = next((rooms[each] for each in sorted(rooms, reverse=True) if each < depth), "")
        # A line that goes on belongs to the room of the one before it.
        found |= {where + name for name in re.findall(r"\b\w+\.py\b", line)}
    return found


def test_every_module_is_in_the_tree_once():
    there = {
        path.relative_to(ROOT / "src/redrive").as_posix()
        for path in (ROOT / "src/redrive").rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    ours = {name for name in there if not name.startswith(AS_A_WHOLE)}
    assert {name for name in listed() if name != "__init__.py"} == ours
