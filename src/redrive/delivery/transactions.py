"""Transactions: what is written for a prefix of a partition and the progress up to there, as one.

Those of the worker, of a task and of frames. What waits for its transaction differs: records are
kept by offset, and cut where a transaction ends (`transaction_buffer.py`); rows come in the order
in which they were read, as columns, and are chunks already (`engines/spark/frames/chunks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from redrive.delivery.refusing_topics import RefusingTopics, raise_unless_refused
from redrive.errors import PublishError

if TYPE_CHECKING:
    from redrive.kafka.transactional_producer import TransactionalProducer
    from redrive.ports import Position
    from redrive.record import TopicPartition, Write

Submit = Callable[..., "Future[None]"]
"""Has a function called with its arguments, in another thread."""


class Part(Protocol):
    """What one transaction takes of a partition."""

    @property
    def end(self) -> int:
        """The offset up to which it goes."""
        ...

    @property
    def writes(self) -> Sequence[Write]:
        """What is written for it."""
        ...


PartT = TypeVar("PartT", bound=Part)


class Transactions(Generic[PartT]):
    """Those of one partition, one after the other, each committed beside the work on the next."""

    def __init__(
        self,
        producer: TransactionalProducer,
        place: TopicPartition,
        *,
        at: Callable[[int], Position],
        topics: RefusingTopics,
        sent_to: Collection[str] = (),
        submit: Submit,
        completed: Callable[[Position, PartT], None],
    ) -> None:
        """What is committed for an offset is said by `at`.

        `sent_to` are the topics that handlers have sent to, whenever it is looked at. `completed`
        is called with what was committed.
        """
        self.began = -inf
        """The monotonic time at which the last one began."""
        self._producer = producer
        self._place = place
        self._at = at
        self._topics = topics
        self._sent_to = sent_to
        self._submit = submit
        self._completed = completed
        self._under_way: tuple[PartT, Position, Future[None]] | None = None

    @property
    def under_way(self) -> PartT | None:
        """What is being committed, until it is settled."""
        under_way = self._under_way
        return None if under_way is None else under_way[0]

    @property
    def ended(self) -> bool:
        """Whether the one under way has ended, so that settling it does not wait."""
        return self._under_way is not None and self._under_way[2].done()

    def begin(self, part: PartT, *membership: Any) -> None:
        """Commit a part and its position together; a member of the group says so."""
        position = self._at(part.end)
        self.began = monotonic()
        committing = self._submit(self._commit, part.writes, {self._place: position}, *membership)
        self._under_way = (part, position, committing)

    def settle(self) -> PublishError | None:
        """Wait for the one under way: it is complete, or returns which of its writes were refused.

        Then nothing of it is left. Whatever else kept it from being committed is raised.
        """
        if self._under_way is None:
            return None
        part, position, committing = self._under_way
        try:
            committing.result()
        except PublishError as error:
            raise_unless_refused(error)
            return error
        else:
            self._completed(position, part)
            return None
        finally:
            self._under_way = None  # last: whoever waits for the end finds everything counted

    def _commit(
        self,
        writes: Sequence[Write],
        positions: Mapping[TopicPartition, Position],
        *membership: Any,
    ) -> None:
        self._topics.meet(self._sent_to)
        error = self._topics.refusal(writes)
        if error is not None:
            raise error  # without a transaction that would only be taken back
        self._producer.commit(writes, positions, *membership)
