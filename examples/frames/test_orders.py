"""How a frame handler is tested: it is a plain function on DataFrames."""

from __future__ import annotations

import json

import orders
import pytest
from pyspark.sql import SparkSession

from redrive import Record, Retry
from redrive.testing.frames import frame_of, outcomes_of


@pytest.fixture
def spark():
    return SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()


@pytest.fixture
def customers(tmp_path, monkeypatch):
    (tmp_path / "first.json").write_text('{"customer": 1, "name": "Ada"}\n')
    monkeypatch.setenv("CUSTOMERS", str(tmp_path))
    return tmp_path


def order(**fields):
    return Record("orders", value=json.dumps(fields).encode(), key=b"k")


def test_each_order_has_its_outcome(spark, customers):
    frame = frame_of(
        spark,
        orders.app,
        [
            order(id="a", customer=1, amount=9.5),
            order(id="b", customer=2, amount=1),
            order(customer=1, amount=1),
            order(id="d", customer=1, amount=-3),
            Record("orders", value=b"{"),
            Record("orders"),
        ],
    )
    sent, waits, *buried = outcomes_of(orders.enrich(frame))
    (message,) = sent.sends
    assert (sent.kind, message.topic, message.key) == ("send", "orders.enriched", b"k")
    assert json.loads(message.value or b"")["name"] == "Ada"
    assert (waits.kind, waits.reason) == ("park", "the customer is not known yet")
    assert [one.reason for one in buried] == [
        "not an order",
        "not an order",
        "broken JSON",
        "broken JSON",
    ]


def test_an_order_that_waited_is_sent_once_its_customer_is_known(spark, customers):
    (customers / "second.json").write_text('{"customer": 2, "name": "Bob"}\n')
    waiting = [order(id="b", customer=2, amount=1)]
    frame = frame_of(spark, orders.app, waiting, attempt=2, error=Retry("unknown"))
    (outcome,) = outcomes_of(orders.enrich(frame))
    assert outcome.kind == "send"
