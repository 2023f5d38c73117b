"""redrive in your own Spark program: `handle = redrive.spark.start(spark, "shop:app")`.

`done`, `send`, `send_all`, `park` and `bury` make the outcomes of frame handlers; `connector_jars`
is what a session needs for them. `Collector` has a run's metrics. `DueSource` is the streaming
source `redrive-due`.
"""

from redrive.delivery.store import StoreRefusedError, TransactionEndedError
from redrive.engines.spark.frames.columns import bury, done, park, send, send_all
from redrive.engines.spark.frames.due import DueSource
from redrive.engines.spark.frames.faults import ExpressionError, FunctionError
from redrive.engines.spark.metrics import SparkCollector as Collector
from redrive.engines.spark.queries import Handle, RunError, start
from redrive.engines.spark.task import WorkerKilledError

__all__ = [
    "Collector",
    "DueSource",
    "ExpressionError",
    "FunctionError",
    "Handle",
    "RunError",
    "StoreRefusedError",
    "TransactionEndedError",
    "WorkerKilledError",
    "bury",
    "connector_jars",
    "done",
    "park",
    "send",
    "send_all",
    "start",
]


def connector_jars() -> str:
    """Spark's Kafka connector, for `spark.jars`; downloaded once, then cached."""
    from redrive.local.jars import fetch

    return ",".join(map(str, fetch("spark-kafka")))
