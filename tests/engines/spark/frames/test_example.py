"""The tests of examples/frames, in the session that all tests share."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parents[4] / "examples" / "frames")
sys.path.insert(0, FOLDER)
example = import_module("test_orders")
sys.path.remove(FOLDER)

customers = example.customers
test_each_order_has_its_outcome = example.test_each_order_has_its_outcome
test_an_order_that_waited_is_sent = (
    example.test_an_order_that_waited_is_sent_once_its_customer_is_known
)


@pytest.fixture
def spark(spark_session):
    return spark_session
