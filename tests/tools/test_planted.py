"""Bugs planted for real processes still fit the code: those tests are long, and some run rarely."""

from __future__ import annotations

import ast

import pytest
from planted import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=[bug.file for bug in BUGS])
def test_a_bug_can_be_planted(bug: Bug) -> None:
    ast.parse(bug.text())
