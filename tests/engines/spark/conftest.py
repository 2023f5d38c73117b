"""These suites are about Spark alone."""

from __future__ import annotations

from typing import Any

import pytest
from running import OnSpark


@pytest.fixture(params=["spark"])
def engine(spark_session: Any) -> OnSpark:
    return OnSpark(spark_session)
