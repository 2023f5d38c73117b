"""The words that an app's choices are made of."""

from typing import Literal

Ordering = Literal["partition", "key", "unordered"]
Ack = Literal["auto", "manual"]
Commit = Literal["batch", "immediate"]
OnDataLoss = Literal["stop", "continue"]
Engine = Literal["spark", "worker"]
