"""An app with letters, in memory."""

from __future__ import annotations

import pytest
from operating import World


@pytest.fixture
def world():
    return World(values=[f"v{number}" for number in range(20)])
