"""redrive in a Spark program of your own: `handle = redrive.spark.start(spark, "shop:app")`.

`done`, `send`, `send_all`, `park` and `bury` make the outcomes of frame handlers; `connector_jars`
is what a session needs for them. `DueSource` is the streaming source `redrive-due`.
"""

from redrive.engines.spark.frames.columns import bury, done, park, send, send_all
from redrive.engines.spark.frames.due import DueSource
from redrive.engines.spark.queries import Handle, RunError, start

__all__ = [
    "DueSource",
    "Handle",
    "RunError",
    "bury",
    "connector_jars",
    "done",
    "park",
    "send",
    "send_all",
    "start",
]


def connector_jars() -> str:
    """Spark's Kafka connector, for `spark.jars`; fetched once, then from the cache."""
    from redrive.local.jars import fetch

    return ",".join(map(str, fetch("spark-kafka")))
