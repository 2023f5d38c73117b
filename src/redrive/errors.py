"""Everything redrive raises, in one tree.

Each with the first words of its docstring, and the end of the name of the module that defines it if
that is another one than this.

```text
RedriveError
├── ConfigurationError        One or more mistakes in an app or its configuration
├── NotReadyError             Kafka or the database are not as the app needs them
├── DataLossError             Records are gone although they were not complete
├── ResourceError             A resource of the app could not be opened
├── ContextError              A handler used its context in a way its app does not allow
├── EnvelopeError             The redrive-* headers of a record cannot be read
├── PublishError              A write did not become durable
│   └── WriteNotAllowedError  A write was refused, as this user lacks a permission [kafka.errors]
├── HandlerTimeout            A handler did not end, or did not acknowledge its record
├── Undecodable               The value of a record could not be decoded
├── Conflict                  A record's id was handled before with another payload
├── Unhandled                 This version of the app has no handler for a record
├── NoIdError                 A record has no id
├── PastError                 The error of an earlier process
├── TooManyDeadError          Most records of a run would be buried
├── LocalError                The embedded Kafka or PostgreSQL cannot run
├── LedgerError               The ledger's tables are missing, behind, or say no
│   └── DuplicateOutboxId     An outbound record with this id was sent before
├── BrokerError               The broker could not be reached, or refused [kafka.errors]
│   ├── NotAllowedError       This user lacks a permission [kafka.errors]
│   ├── MissingTopicError     There is no such topic [kafka.errors]
│   ├── NoLeaderError         No broker leads a partition now [kafka.errors]
│   ├── OffsetsGoneError      The log does not have the requested offset [kafka.errors]
│   ├── TransactionError      A transaction did not commit [kafka.transactional_producer]
│   └── NameInUseError        The group does not let this worker in by its name [worker.loop]
├── FencedError               Another run of the app has taken over [kafka.transactional_producer]
├── StoreDownError            The database cannot be asked [delivery.store]
├── StoreBusyError            A rival was in the way too long [delivery.store]
├── StoreRefusedError         The database does not take what a record has to write [delivery.store]
├── StoreNotAllowedError      The database refuses this role a privilege [delivery.store]
├── TransactionEndedError     A handler has ended the transaction [delivery.store]
├── RevokedError              The partition was taken away [delivery.unit]
├── GivenUpError              A call returned after it was given up [calls.lots]
├── WorkerError               A worker ended with an error [worker.fate]
├── RunError                  A run ended with an error [spark.handle]
├── RivalError                Another run of the app is active [spark.marks]
├── LostHouseError            A later task handles the partition [spark.own_houses]
├── WorkerKilledError         A record whose Python worker died, twice [spark.task]
├── RowsError                 A frame handler did not give back the rows [frames.row_audit]
├── ExpressionError           An expression of a frame handler cannot be computed [frames.faults]
├── FunctionError             A Python function of a frame handler raised [frames.faults]
├── KafkaAwayError            Kafka is not accepting messages [ledger.publishing]
├── UnderWayError             Another operation on the same letters is under way [dead.desk]
├── TakenOverError            Somebody else has taken over the letters [dead.desk]
├── NotAnsweredError          Code of the app took too long [dead.user_code]
├── FixError                  A fix raised, or returned what cannot be a value [dead.fixing]
├── ProveError                A cell could not be produced [prove.runs]
└── Signal                    Raised by a handler [signals]
    ├── Retry                 The record cannot be handled now: try it again later [signals]
    ├── Bury                  The record can never be handled [signals]
    └── Outage                Something that the handler depends on is away [signals]
```

Each message says what happened, to what, and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Refusal = Literal["outage", "topic", "message", "unknown"]
"""Why a write is refused: nobody is there to take it; its topic takes nothing from this app (it is
missing, or not allowed); its topic does not take this very message (too large, without key)."""


class RedriveError(Exception):
    """The root of everything redrive raises."""


class ConfigurationError(RedriveError):
    """One or more mistakes in an app or its configuration, found before anything is consumed."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            super().__init__(f"{len(self.problems)} mistakes in the configuration:{lines}")


class NotReadyError(RedriveError):
    """Kafka or the database are not as the app needs them; the message says what to run."""


class DataLossError(RedriveError):
    """Records are gone although they were not complete."""


class ResourceError(RedriveError):
    """A resource of the app could not be opened, or raised when it was closed."""


class ContextError(RedriveError):
    """A handler used its context in a way its app does not allow."""


class EnvelopeError(RedriveError):
    """The redrive-* headers of a record cannot be read."""


class PublishError(RedriveError):
    """A write did not become durable; nothing that depends on it may be committed."""

    refused: Sequence[object] = ()
    """The very writes that were refused, where the publisher knows them; the others are durable."""
    reasons: Sequence[PublishError] = ()
    """Why: one error for each of them."""
    topic: str = ""
    kind: Refusal = "unknown"
    """What would have to change for it to be taken."""

    @property
    def outage(self) -> bool:
        """Whether no broker took it: any other write would fare the same."""
        return self.kind == "outage"


class HandlerTimeout(RedriveError):
    """A handler did not end, or did not acknowledge its record, within its time-out."""


class Undecodable(RedriveError):
    """The value of a record could not be decoded; the cause says why."""


class Conflict(RedriveError):
    """A record's id was handled before with another payload: not a duplicate, and not new."""


class Unhandled(RedriveError):
    """This version of the app has no handler for a record, which another version has parked."""


class NoIdError(RedriveError):
    """A record has no id; if it failed before that, the message says both."""


class PastError(RedriveError):
    """The error of an earlier process, as far as a record's headers tell it."""


class TooManyDeadError(RedriveError):
    """Most records of a run would be buried: it ends instead, as `stop_on_dead=` asks."""


class LocalError(RedriveError):
    """The embedded Kafka or PostgreSQL cannot run; the message says why and what to do."""


class LedgerError(RedriveError):
    """The ledger's tables are missing, behind, or say no."""


class DuplicateOutboxId(LedgerError):
    """An outbound record with this id was sent before, by this app: this one is a duplicate."""

    def __init__(self, outbox_id: str) -> None:
        super().__init__(
            f"an outbound record with id {outbox_id!r} was sent before: the record that sends it"
            " again is a duplicate, and nothing of it counts"
        )
        self.id = outbox_id
