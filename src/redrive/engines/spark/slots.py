"""Slots: how many tasks a Spark session can run at once.

Not `defaultParallelism`: that is `spark.default.parallelism` where it is set, and it often is, for
shuffles. A batch of more tasks than slots has some of them wait for the others, up to the deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST: Final = 2
_NO_LIMIT: Final = 2**31 - 1


def slots(spark: SparkSession) -> int:
    """As many as there are, or may come to be where executors are allocated as they are needed."""
    context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 -- Java's
    profile = context.resourceProfileManager().defaultResourceProfile()
    return max(int(context.maxNumConcurrentTasks(profile)), _of_all_executors(context.conf()))


def _of_all_executors(conf: Any) -> int:
    if not conf.getBoolean("spark.dynamicAllocation.enabled", False):  # noqa: FBT003 -- Java's
        return 0
    executors = conf.getInt("spark.dynamicAllocation.maxExecutors", _NO_LIMIT)
    cores = conf.getInt("spark.executor.cores", 1)
    if executors == _NO_LIMIT:
        return 0
    return int(executors * (cores // conf.getInt("spark.task.cpus", 1)))


def enough_slots(spark: SparkSession) -> int:
    """The same; a session that has too few for two lanes is refused."""
    found = slots(spark)
    if found < _LEAST:
        raise ConfigurationError(
            f"Spark has {found} task slot: the main and the retry lane need one each; use"
            " local[2, 4] or more"
        )
    return found
