"""redrive in a program of your own, as a member of the app's consumer group.

    import redrive.worker

    worker = redrive.worker.start("shop:app", bootstrap="localhost:9092")
    worker.await_termination()

`start` joins the group and returns; the records are handled by threads of this process. `stop()`
lets what runs finish, commits and leaves: call it when your program ends. A run that is to end by
itself says so in its options:

    options = redrive.worker.Options(until="empty")
    redrive.worker.start("shop:app", options=options).await_termination()

The app may also be passed as it is, also from the file that is run: no other process imports it.
Signals, logging and metrics are the program's own; `redrive run --engine worker` has them built in.
"""

from redrive.delivery.store import (
    StoreNotAllowedError,
    StoreRefusedError,
    TransactionEndedError,
)
from redrive.engines.worker.fate import WorkerError
from redrive.engines.worker.options import Options
from redrive.engines.worker.worker import Worker, start
from redrive.kafka.errors import BrokerError, NotAllowedError

__all__ = [
    "BrokerError",
    "NotAllowedError",
    "Options",
    "StoreNotAllowedError",
    "StoreRefusedError",
    "TransactionEndedError",
    "Worker",
    "WorkerError",
    "start",
]
