"""An app in a module of its own, in a working directory of its own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from redrive.cli.commands import app as command

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


@pytest.fixture
def redrive(monkeypatch) -> Iterator[Callable[..., Result]]:
    """Runs `redrive` with these arguments, on a wide terminal that is none."""
    monkeypatch.setenv("COLUMNS", "200")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(command, list(arguments))

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)
