"""An app with dead letters on a real Kafka, and commands that are killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from shops import Shop


@pytest.fixture
def shop(redrive_stack, redrive_prefix, tmp_path, monkeypatch) -> Iterator[Callable[..., Shop]]:
    """Makes an app in a module of its own, with its topics."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    made: list[Shop] = []

    def make(**options: object) -> Shop:
        made.append(Shop(redrive_stack, redrive_prefix, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
