"""These suites are about the worker alone."""

from __future__ import annotations

import pytest
from running import OnWorker


@pytest.fixture(params=["worker"])
def engine() -> OnWorker:
    return OnWorker()
