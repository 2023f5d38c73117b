"""What the ledger's guarantees cost, each beside what it is compared with, in one run.

`make bench ARGS=delivery` runs all of it; `bench/bench_delivery.py relay` a part.
"""

from __future__ import annotations

import signal
import sys

from delivery import inbox, relay
from delivery.world import world


def main() -> None:
    # So that what was started is ended when somebody ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parts = {"inbox": inbox.run, "relay": relay.run}
    wanted = sys.argv[1:] or list(parts)
    with world() as running:
        kept = [parts[part](running) for part in wanted]
    if not all(kept):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
