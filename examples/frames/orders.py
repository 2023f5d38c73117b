"""Orders: JSON in, checked, joined with the customers there are, and sent on: DataFrame code."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documentation calls it

from redrive import App, RetryPolicy
from redrive.spark import bury, park, send

ORDER = "id string, customer int, amount decimal(10,2), broken string"
CUSTOMER = "customer int, name string"

app = App("desk", delivery="transaction")


@app.frame("orders", retry=RetryPolicy("2s 5s 10s"), sends="orders.enriched")
def enrich(frame: DataFrame) -> DataFrame:
    """Each order with the name of its customer; one whose customer is not known yet waits."""
    text = F.col("value").cast("string")
    order = F.from_json(text, ORDER, {"columnNameOfCorruptRecord": "broken"})
    # Read for each batch: a customer who comes today is found when the order is tried again.
    customers = frame.sparkSession.read.schema(CUSTOMER).json(os.environ["CUSTOMERS"])
    known = customers.dropDuplicates(["customer"])  # two matches would double an order
    rows = (
        frame.withColumn("order", order)
        .withColumn("customer", F.col("order.customer"))
        .join(F.broadcast(known), "customer", "left")
    )
    enriched = F.to_json(F.struct("order.id", "customer", "name", "order.amount"))
    incomplete = F.col("order.id").isNull() | F.col("customer").isNull()
    outcome = (
        F.when(F.col("order").isNull() | F.col("order.broken").isNotNull(), bury("broken JSON"))
        .when(incomplete | ~(F.col("order.amount") > 0), bury("not an order"))
        .when(F.col("name").isNull(), park("the customer is not known yet"))
        .otherwise(send("orders.enriched", "key", enriched))
    )
    return rows.withColumn("outcome", outcome)
