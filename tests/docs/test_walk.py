"""The walks of docs/architecture.md are what both engines really call, and stay short."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def walk() -> ModuleType:
    spec = importlib.util.spec_from_file_location("walk", ROOT / "bench/walk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("engine", "begins"), [("worker", "On the worker, "), ("spark", "On Spark, ")]
)
def test_the_page_has_each_function_of_the_walk(walk: ModuleType, engine: str, begins: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    head, block = re.findall(
        rf"^{begins}(.*?)\n\n```text\n(.*?)```", text, re.DOTALL | re.MULTILINE
    )[0]
    written = re.findall(r"^(\S+\.py) +(\S+)", block, re.MULTILINE)
    found = [tuple(name.split()) for name in walk.names(getattr(walk, engine)())]
    assert sorted(written) == sorted(found)
    modules = {module for module, _ in found}
    assert head.startswith(f"{len(found)} functions of {len(modules)} modules")
    most_functions, most_modules = walk.LIMITS[engine]
    assert len(found) < most_functions
    assert len(modules) < most_modules
