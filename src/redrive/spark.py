"""redrive in a Spark program of your own: `handle = redrive.spark.start(spark, "shop:app")`."""

from redrive.engines.spark.queries import Handle, RunError, start

__all__ = ["Handle", "RunError", "start"]
