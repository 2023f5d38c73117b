"""Settings: arguments, then environment, then TOML."""

from __future__ import annotations

from typing import TypedDict


class SettingsArguments(TypedDict, total=False):
    """Settings that can be given to App() or on the command line."""

    bootstrap: str
