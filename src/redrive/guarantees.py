"""The five guarantees, as a table of pairs: what is stored with the work, and how it is published.

A store is a database transaction around the work: with an inbox, which remembers what was handled,
with an outbox, which holds what is to be published, or with both. A publisher writes to Kafka:
flushed, messages are durable before the work counts; in a Kafka transaction, they become visible
together with it.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Delivery = Literal["at-least-once", "idempotent", "outbox", "idempotent+outbox", "transaction"]
Store = Literal["none", "inbox", "outbox", "both"]
Publishing = Literal["flush", "transaction"]


class Guarantee(NamedTuple):
    """What one `delivery=` means."""

    store: Store
    publisher: Publishing

    @property
    def inbox(self) -> bool:
        """Whether what was handled is remembered, so that it is handled once."""
        return self.store in ("inbox", "both")

    @property
    def outbox(self) -> bool:
        """Whether outbound records are rows, which a relay publishes."""
        return self.store in ("outbox", "both")

    @property
    def database(self) -> bool:
        """Whether handlers run in a database transaction: `ctx.db`."""
        return self.store != "none"

    @property
    def transactional(self) -> bool:
        """Whether writes and progress become visible together, in Kafka transactions."""
        return self.publisher == "transaction"


GUARANTEES: Final[dict[str, Guarantee]] = {
    "at-least-once": Guarantee("none", "flush"),
    "idempotent": Guarantee("inbox", "flush"),
    "outbox": Guarantee("outbox", "flush"),
    "idempotent+outbox": Guarantee("both", "flush"),
    "transaction": Guarantee("none", "transaction"),
}

WITH_DATABASE: Final = tuple(word for word, each in GUARANTEES.items() if each.database)
