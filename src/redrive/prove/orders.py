"""What a cell tells the app that it runs, through the environment of its processes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Final, Literal

from redrive.errors import ConfigurationError
from redrive.failpoints import Point
from redrive.guarantees import Delivery

VARIABLE: Final = "REDRIVE_PROVE"
Act = Literal["kill", "stop"]


@dataclass(frozen=True)
class Orders:
    """What to run, and where to fail."""

    name: str
    delivery: Delivery
    service: str
    """Address of the service that takes the POST."""
    database: str
    point: Point | None
    act: Act
    marker: str
    """A file that marks the point as reached: it fails there only once."""
    own_ids: bool
    keys: bool

    @property
    def source(self) -> str:
        """Where records come from."""
        return f"{self.name}.orders"

    @property
    def outbound(self) -> str:
        """Where they go."""
        return f"{self.name}.shipped"

    def written(self) -> str:
        """As text."""
        return json.dumps(asdict(self))


def read() -> Orders:
    """The orders of this process."""
    text = os.environ.get(VARIABLE)
    if text is None:
        raise ConfigurationError(
            "redrive.prove.shop is run by `redrive prove`; run that command instead"
        )
    return Orders(**json.loads(text))
