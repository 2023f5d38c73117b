"""redrive in a program of your own, as a member of the app's consumer group.

    import redrive.worker

    worker = redrive.worker.start("shop:app", bootstrap="localhost:9092")
    worker.await_termination()

`start` joins the group and returns; the records are handled by threads of this process. `stop()`
lets what runs finish, commits and leaves: call it when your program ends. A run that is to end by
itself says so in its options:

    options = redrive.worker.Options(until="empty")
    redrive.worker.start("shop:app", options=options).await_termination()

You can also pass the App itself, even from the script that runs.
Signals and logging are the program's own, and so is the registry of metrics: `Collector(worker)` is
what it collects from. `redrive run --engine worker` has all of them built in.
"""

from redrive.delivery.store import (
    StoreNotAllowedError,
    StoreRefusedError,
    TransactionEndedError,
)
from redrive.engines.worker.fate import WorkerError
from redrive.engines.worker.metrics import WorkerCollector as Collector
from redrive.engines.worker.options import Options
from redrive.engines.worker.worker import Worker, start
from redrive.kafka.errors import BrokerError, NotAllowedError

__all__ = [
    "BrokerError",
    "Collector",
    "NotAllowedError",
    "Options",
    "StoreNotAllowedError",
    "StoreRefusedError",
    "TransactionEndedError",
    "Worker",
    "WorkerError",
    "start",
]
