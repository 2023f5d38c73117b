"""Numbers that can be tuned: in one place, each with what it does, and used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from redrive import tuning

SOURCE = Path(tuning.__file__).parent


def modules(*rooms):
    for room in rooms:
        for path in sorted((SOURCE / room).rglob("*.py")):
            name = path.relative_to(SOURCE).as_posix()
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def numbers():
    """Names and docstrings, as they stand in the module."""
    body = ast.parse(Path(tuning.__file__).read_text(encoding="utf-8")).body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            said = after.value.value if isinstance(after, ast.Expr) else ""
            yield statement.target.id, said


@pytest.mark.parametrize(("name", "said"), list(numbers()))
def test_a_number_says_what_it_is_and_what_another_would_do(name, said):
    assert said.index("Larger") > 0
    assert said.index("Smaller") > said.index("Larger")
    assert getattr(tuning, name) > 0


def test_each_number_is_used():
    used = {
        alias.name
        for _, tree in modules(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "redrive.tuning"
        for alias in node.names
    }
    assert used == {name for name, _ in numbers()}


def test_no_module_has_times_of_its_own():
    """Whole numbers may be a protocol's; fractions never are."""
    own = [
        f"{name}:{statement.lineno}"
        for name, tree in modules("processing", "delivery", "engines", "kafka", "ledger")
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, float)
    ]
    assert own == []
