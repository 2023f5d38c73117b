"""The values that an app's options can have."""

from typing import Literal

Ordering = Literal["partition", "key", "unordered", "strict"]
AfterBury = Literal["continue", "hold"]
Ack = Literal["auto", "manual"]
Commit = Literal["batch", "immediate"]
OnDataLoss = Literal["stop", "continue"]
Engine = Literal["spark", "worker"]
