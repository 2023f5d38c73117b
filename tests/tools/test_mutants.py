"""Planted bugs in a tiny package of its own: one is caught, one survives, one is stale."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "mutants.py"

MUTANTS = """
[[mutant]]
name = "minus"
file = "src/tiny/__init__.py"
find = "a + b"
replace = "a - b"
promise = "sums are right"

[[mutant]]
name = "unseen"
file = "src/tiny/__init__.py"
find = "return 42"
replace = "return 43"
promise = "the answer is right"

[[mutant]]
name = "gone"
file = "src/tiny/__init__.py"
find = "a * b"
replace = "a / b"
promise = "products are right"

[[mutant]]
name = "not-python"
file = "src/tiny/__init__.py"
find = "a + b"
replace = "a +"
promise = "it is Python"

[[mutant]]
name = "not-importable"
file = "src/tiny/__init__.py"
find = "ANSWER = 42"
replace = "ANSWER = answer()"
promise = "it can be imported"
"""

TINY = """
ANSWER = 42

def add(a, b):
    return a + b

def answer():
    return 42
"""

TEST = """
import tiny

def test_answer_exists():
    assert tiny.answer

def test_add():
    assert tiny.add(2, 3) == 5
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a tiny package; the installed one is elsewhere, as in real life."""
    root = tmp_path / "with a space"
    for name, text in {
        "src/tiny/__init__.py": TINY,
        "tests/unit/test_tiny.py": TEST,
        "mutants.toml": MUTANTS,
        "pytest.ini": "[pytest]\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


def run(root: Path, *arguments: str) -> tuple[int, str]:
    """Run the tool; its exit code and what it printed."""
    where = ["--root", str(root), "--config", str(root / "mutants.toml"), "--package", "tiny"]
    ended = subprocess.run(
        [sys.executable, str(TOOL), *where, *arguments],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # faster, and nothing else
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


def test_a_caught_mutant_names_the_test_that_caught_it(repository: Path) -> None:
    code, output = run(repository, "--only", "minus")

    assert code == 0
    assert "tests/unit/test_tiny.py::test_add" in output
    assert "1/1 minus: caught" in output
    assert "1 of 1 planted bugs caught" in output


def test_one_that_survives_or_is_stale_fails_the_run(repository: Path) -> None:
    code, output = run(repository, "--only", "minus", "--only", "unseen", "--only", "gone", "-j2")

    assert code == 1
    assert "SURVIVED: nobody" in output
    assert "STALE: its text occurs 0 times, not once" in output
    assert "1 of 3 planted bugs caught" in output


def test_a_mutant_that_does_not_run_proves_nothing(repository: Path) -> None:
    code, output = run(repository, "--only", "not-python", "--only", "not-importable")

    assert code == 1
    assert "BROKEN: not Python" in output
    assert "BROKEN: the tests did not run" in output
    assert "0 of 2 planted bugs caught" in output


def test_text_that_occurs_twice_is_stale(repository: Path) -> None:
    source = repository / "src/tiny/__init__.py"
    source.write_text(source.read_text("utf-8") + "\nagain = lambda a, b: a + b\n", "utf-8")

    code, output = run(repository, "--only", "minus")

    assert code == 1
    assert "STALE: its text occurs 2 times, not once" in output


def test_red_tests_are_said_before_anything_is_planted(repository: Path) -> None:
    (repository / "tests/unit/test_red.py").write_text("def test_red():\n    assert 0\n", "utf-8")

    code, output = run(repository, "--only", "minus")

    assert code == 1
    assert "not green without a mutant" in output


def test_the_list_names_each_promise(repository: Path) -> None:
    code, output = run(repository, "--list")

    assert code == 0
    assert "minus: sums are right (src/tiny/__init__.py)" in output


def test_an_unknown_name_is_refused(repository: Path) -> None:
    code, output = run(repository, "--only", "nobody")

    assert (code, output) == (1, "mutants: no such mutant: nobody\n")


def test_a_run_without_mutants_proves_nothing(repository: Path) -> None:
    (repository / "mutants.toml").write_text("", "utf-8")

    code, output = run(repository)

    assert code == 1
    assert "names no mutant" in output


def test_the_working_tree_is_not_touched(repository: Path) -> None:
    run(repository, "--only", "minus")

    assert (repository / "src/tiny/__init__.py").read_text("utf-8") == TINY
    assert not list(repository.rglob("__pycache__"))


def test_every_planted_bug_of_the_project_still_has_its_place() -> None:
    root = TOOL.parents[1]
    planted = tomllib.loads((root / "tools" / "mutants.toml").read_text())["mutant"]
    found = {
        each["name"]: (root / each["file"]).read_text().count(each["find"]) for each in planted
    }
    assert {name: count for name, count in found.items() if count != 1} == {}


def test_every_test_that_is_to_catch_one_is_there() -> None:
    root = TOOL.parents[1]
    planted = tomllib.loads((root / "tools" / "mutants.toml").read_text())["mutant"]
    named = {test for each in planted for test in each.get("tests", ())}
    assert [test for test in sorted(named) if not is_there(root, test)] == []


def is_there(root: Path, test: str) -> bool:
    name, _, function = test.partition("::")
    path = root / name
    if not function:
        return path.exists()
    return path.is_file() and f"def {function.partition('[')[0]}(" in path.read_text("utf-8")
