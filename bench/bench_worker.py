"""The worker against the ideal and against a bare confluent-kafka loop, in one run.

`make bench ARGS=worker` runs all of it; `bench/bench_worker.py sleeping noop` some parts. Each
measurement has a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys

from worker import measures, parts
from worker.prices import PRICES
from worker.world import world


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        name, given = sys.argv[2], json.loads(sys.argv[3])
        print(json.dumps(getattr(measures, name)(**given)))
        return
    known = parts.PARTS | PRICES
    wanted = sys.argv[1:] or list(known)
    with world() as running:
        kept = [known[part](running, measure) for part in wanted]
    if not all(kept):
        raise SystemExit(1)


def measure(what: str, /, **given: object) -> dict[str, float]:
    """One measurement, in a process of its own."""
    command = [sys.executable, __file__, "--measure", what, json.dumps(given)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
