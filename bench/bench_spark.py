"""The Spark engine against bare PySpark, on the same data and in one run.

`make bench ARGS=spark` runs all of it; `bench/bench_spark.py copy`, `waiting` or
`frames` a part.
"""

from __future__ import annotations

import sys

from spark import copy, frames, waiting
from spark.world import world


def main() -> None:
    parts = {"copy": copy.run, "waiting": waiting.run, "frames": frames.run}
    wanted = sys.argv[1:] or list(parts)
    with world() as running:
        kept = [parts[part](running) for part in wanted]
    if not all(kept):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
