"""Data loss: what is said of it, and whether the run stops or continues, as the app chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redrive.app import App
from redrive.errors import DataLossError
from redrive.numbers import counted


def recreated_sentence(topic: str, when: str = "") -> str:
    """The sentence about a topic that another one of its name has replaced."""
    return f'topic "{topic}" was deleted and recreated{f" {when}" if when else ""}'


def deleted(topic: str, records: int) -> str:
    """The sentence about a topic that is gone."""
    lost = f", with up to {counted(records, 'record')} unread" if records else ""
    return f'topic "{topic}" was deleted{lost}'


def report(app: App, losses: Sequence[str], go_on: Callable[[Sequence[str]], None]) -> None:
    """Stop the run, or go on with what is left: as the app chose."""
    if app.on_data_loss == "stop":
        raise DataLossError(
            "; ".join(losses) + ' (on_data_loss="continue" continues with what is left)'
        )
    go_on(losses)
