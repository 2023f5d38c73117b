"""The parent of Spark's Python workers: it imports what all of them need, once, before they fork.

Without it each worker imports Spark's Python side, pyarrow, librdkafka and redrive by itself: a
second of CPU time for each, of which a first batch has one per task. No client is made here: what
has threads does not survive a fork.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

from pyspark import daemon

_OF_TASKS: Final = "pyspark.worker"
_NEEDED: Final = (
    "pyarrow",
    "pyspark.sql.pandas.serializers",
    "redrive.engines.spark.dead.source",
    "redrive.engines.spark.frames.sink",
    "redrive.engines.spark.source",
    "redrive.engines.spark.task",
)


_run_worker: Final = daemon.worker


def _worker(connection: Any, authenticated: Any) -> int:
    """A worker as Spark has it, which closes the app's resources when it ends for good."""
    code: int = _run_worker(connection, authenticated)
    if code and _OF_TASKS in sys.argv:
        import_module("redrive.engines.spark.runtime").close_at_the_end()
    return code


if __name__ == "__main__":
    if _OF_TASKS in sys.argv:
        for name in _NEEDED:
            import_module(name)
    daemon.worker = _worker  # type: ignore[assignment]  # -- the same, and one step more
    daemon.manager()
