"""A process that handles the same thousand records as its rival, in one order or the other."""

from __future__ import annotations

import json
import sys
from typing import Any

from sides import Side, inserting

from redrive import App, RetryPolicy, header


def main(dsn: str, order: str) -> None:
    names = [f"{n:04}" for n in range(1000)]
    if order == "down":
        names.reverse()
    app = App("shop", delivery="idempotent", ordering="partition", retry=RetryPolicy("1s"))
    side = Side(dsn, inserting(id=header("id"), batch=50)(app))
    side.send(*[(name, name) for name in names])
    side.run_until_empty()
    told: dict[str, Any] = {
        "done": len(side.values("told")),
        "duplicate": side.kinds.count("duplicate"),
        "errors": [str(outcome.error) for outcome in side.outcomes if outcome.error],
    }
    side.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
