"""Outcomes as columns, on a real Spark and without Kafka."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from redrive import App, Record
from redrive.engines.spark.frames.row_audit import RowsError
from redrive.record import Write
from redrive.spark import done, park, send, send_all
from redrive.testing.frames import frame_of, outcomes_of


@pytest.fixture
def frame(spark_session):
    app = App("shop")
    app.frame("orders")(lambda given: given)
    records = [Record("orders", key=b"k", value=b"a b"), Record("orders", value=b"c")]
    return frame_of(spark_session, app, records)


def test_several_messages_of_a_row_are_sent_and_what_says_nothing_takes_none_away(frame):
    value = F.col("value").cast("string")
    words = F.transform(F.split(value, " "), lambda word: send("words", "key", word))
    both = frame.withColumn("outcome", send_all(send("copy", "key", "value"), done()))
    each = frame.withColumn("outcome", words)
    assert [one.sends for one in outcomes_of(both)] == [
        [Write("copy", b"k", b"a b")],
        [Write("copy", None, b"c")],
    ]
    assert [one.sends for one in outcomes_of(each)] == [
        [Write("words", b"k", b"a"), Write("words", b"k", b"b")],
        [Write("words", None, b"c")],
    ]


def test_headers_are_a_column_by_its_name_or_a_dictionary(spark_session):
    app = App("shop")
    app.frame("orders")(lambda given: given)
    headers = (("trace", b"1"), ("trace", None))
    frame = frame_of(spark_session, app, [Record("orders", value=b"v", headers=headers)])
    for given in ("headers", F.col("headers")):
        sent = frame.withColumn("outcome", send("copy", "key", "value", given))
        assert [one.sends for one in outcomes_of(sent)] == [[Write("copy", None, b"v", headers)]]
    made = {"text": "headers", "column": F.col("value")}
    sent = frame.withColumn("outcome", send("copy", "key", "value", made))
    [[write]] = [one.sends for one in outcomes_of(sent)]
    assert write.headers == (("text", b"headers"), ("column", b"v"))


def test_a_row_that_is_sent_and_parked_at_once_is_named(frame):
    both = frame.withColumn("outcome", send_all(send("copy", "key", "value"), park("later")))
    with pytest.raises(RowsError, match=r"orders\[0\]@0 .* not all send"):
        outcomes_of(both)
