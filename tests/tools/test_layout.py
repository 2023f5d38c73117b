"""Whoever knows a module finds its tests: tests/unit has the folders of src/redrive."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def folders(root: Path) -> set[str]:
    return {path.parent.relative_to(root).as_posix() for path in root.rglob("*.py")}


def test_unit_tests_are_in_folders_that_the_source_has_too() -> None:
    assert folders(ROOT / "tests/unit") - folders(ROOT / "src/redrive") == set()
