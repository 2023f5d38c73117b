"""The parent of Spark's Python workers: it imports what all of them need, once, before they fork.

Without it each worker imports Spark's Python side, pyarrow, librdkafka and redrive by itself: a
second of CPU time for each, of which a first batch has one per task. No client is made here: what
has threads does not survive a fork.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from pyspark import daemon

_OF_TASKS: Final = "pyspark.worker"
_NEEDED: Final = (
    "pyarrow",
    "pyspark.sql.pandas.serializers",
    "redrive.engines.spark.source",
    "redrive.engines.spark.task",
)


if __name__ == "__main__":
    if _OF_TASKS in sys.argv:
        for name in _NEEDED:
            import_module(name)
    daemon.manager()
