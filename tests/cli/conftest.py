"""An app in a module of its own, in a working directory of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

SHOP = """
from redrive.app import App
from redrive.policy import RetryPolicy

app = App("{name}", delivery="{delivery}", retry=RetryPolicy("5s 1h"){more})

@app.handler("{name}.orders")
def orders(record, ctx): ...
"""


@pytest.fixture
def shop(tmp_path, monkeypatch, redrive_prefix) -> Iterator[Callable[..., str]]:
    """Writes a module with an app; gives `module:app`. The app's name is the test's prefix."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in ("REDRIVE_BOOTSTRAP", "REDRIVE_DATABASE", "REDRIVE_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    module = f"shop_{redrive_prefix.replace('-', '_')}"

    def write(delivery: str = "at-least-once", more: str = "") -> str:
        text = SHOP.format(name=redrive_prefix, delivery=delivery, more=more)
        (tmp_path / f"{module}.py").write_text(text)
        return f"{module}:app"

    yield write
    sys.modules.pop(module, None)
