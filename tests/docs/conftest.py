"""What pages call by other names than the tests do."""

from __future__ import annotations

import pytest


@pytest.fixture
def spark(spark_session):
    return spark_session
