"""Commits: progress of what is complete, often, a few on their way at a time."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from redrive.engines.worker.reader import kafkas
from redrive.kafka.errors import is_not_allowed
from redrive.ports import Position
from redrive.record import TopicPartition
from redrive.threads import run_within
from redrive.tuning import (
    COMMIT_AT_LEAST_EVERY,
    COMMIT_LOST_AFTER,
    COMMIT_LOST_LOOK_EVERY,
    COMMIT_MANY,
    COMMIT_PAUSE_FACTOR,
    COMMIT_SOON,
    COMMITS_ON_THEIR_WAY,
    LAST_COMMIT_PATIENCE,
)

if TYPE_CHECKING:
    from redrive.choices import Commit
    from redrive.engines.worker.counting import Counting
    from redrive.engines.worker.partition import Partition

log: Final = logging.getLogger("redrive.worker")

_THREAD: Final = "redrive-commit"


class Commits:
    """Commits what is complete. Only the poll thread uses it."""

    def __init__(
        self,
        consumer: Consumer,
        mode: Commit,
        counting: Counting,
        *,
        on_committed: Callable[[Partition, Position], None] = lambda *_: None,
    ) -> None:
        self._consumer = consumer
        self._immediate = mode == "immediate"
        self._counting = counting
        self._on_committed = on_committed
        self._sent: deque[float] = deque()
        self._last = self._next_look = 0.0
        self._troubled = False
        self.not_allowed: tuple[KafkaError, TopicPartition | None] | None = None
        """A refusal for lack of a permission, and the partition that it is about."""

    def look(self, partitions: Collection[Partition]) -> None:
        """Commit, if it is time and something is complete."""
        now = monotonic()
        sent = self._sent
        self._look_for_lost(partitions, now)
        if len(sent) >= COMMITS_ON_THEIR_WAY:
            return
        news = sum(each.tracker.completed - each.committed_count for each in partitions)
        if not news and not any(each.committed is None for each in partitions):
            return
        if not self._immediate:
            wait = COMMIT_SOON if news >= COMMIT_MANY else COMMIT_AT_LEAST_EVERY
            if now - self._last < wait:
                return
        busy = thread_time()
        offsets = self._offsets(partitions)
        # Where much is complete beyond a gap, saying so takes its time: a sixth of it, at most. Not
        # by the clock: that goes on while a hundred other threads have their turn.
        self._last = now + COMMIT_PAUSE_FACTOR * (thread_time() - busy)
        if offsets:
            sent.append(now)
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as raised:
                sent.pop()
                self._failed(raised.args[0], partitions)

    def on_commit(
        self,
        error: KafkaError | None,
        answered: list[Any],
        partitions: Mapping[TopicPartition, Partition],
    ) -> None:
        """Take librdkafka's word on a commit."""
        if self._sent:
            self._counting.committing.add(monotonic() - self._sent.popleft())
        refused = error or _refusal(answered)
        found = [(partitions.get(TopicPartition(o.topic, o.partition)), o) for o in answered]
        known = [(each, one) for each, one in found if each is not None]
        for each, one in known:
            if error is None and one.error is None:
                each.acknowledged = position = Position(one.offset, one.metadata or "")
                self._on_committed(each, position)
        if refused is not None:
            known.sort(key=lambda one: one[1].error is None)  # the first one is named
            self._failed(refused, [each for each, _ in known])
        elif self._troubled:
            self._troubled = False
            log.warning("commits are accepted again")

    def _look_for_lost(self, partitions: Collection[Partition], now: float) -> None:
        """Commit again what was not answered, or overtaken by one before it.

        librdkafka tries a commit again by itself, also when a later one has arrived meanwhile.
        """
        sent, lost_before = self._sent, now - COMMIT_LOST_AFTER
        while sent and sent[0] < lost_before:
            sent.popleft()
        if sent and now < self._next_look:
            return
        self._next_look = now + COMMIT_LOST_LOOK_EVERY
        for each in partitions:
            if each.committed is None or each.acknowledged == each.committed:
                continue
            overtaken = not sent and each.acknowledged is not None
            # Others may be answered all the time: each partition's own commit counts.
            unanswered = each.committed_at < lost_before
            if overtaken or unanswered:
                each.committed = each.acknowledged = None

    def commit_now(self, partitions: Collection[Partition], until: float | None = None) -> None:
        """Commit and wait for it; one that fails is reported, and repeats work at worst.

        With `until` it is waited for until that monotonic time, and a second at least: librdkafka
        would wait for a coordinator as long as a session lasts, and a minute for its answer. Only
        for the last commit of all. One that is given up may still be sent, and in a callback of the
        group it is sent when that has ended: then it would put back what the next owner commits.
        """
        if self._sent:
            for each in partitions:
                each.committed = None  # those on their way may come to nothing
        offsets = self._offsets(partitions)
        if not offsets:
            return
        began = monotonic()
        commit = partial(self._consumer.commit, offsets=offsets, asynchronous=False)
        within = None if until is None else max(LAST_COMMIT_PATIENCE, until - began)
        try:
            answered = commit() if within is None else run_within(within, commit, name=_THREAD)
        except KafkaException as raised:
            self._failed(raised.args[0], partitions)
            return
        except TimeoutError:
            self._failed(KafkaError(KafkaError._TIMED_OUT), partitions)  # noqa: SLF001 -- its name in librdkafka
            return
        self._counting.committing.add(monotonic() - began)
        refused = _refusal(answered or [])
        if refused is not None:
            self._failed(refused, partitions)

    def _offsets(self, partitions: Collection[Partition]) -> list[Any]:
        offsets, now = [], monotonic()
        for each in partitions:
            completed = each.tracker.completed
            if each.committed is not None and completed == each.committed_count:
                continue
            each.committed_count = completed
            position = each.position()
            if position is not None and position != each.committed:
                each.committed, each.committed_at = position, now
                offsets.append(kafkas(each.place, position))
        return offsets

    def _failed(self, error: KafkaError, partitions: Collection[Partition]) -> None:
        self._counting.commit_failures += 1
        for each in partitions:
            each.committed = None  # whatever was said before: it is committed again
        if is_not_allowed(error.name()):
            of_topic = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            place = next((each.place for each in partitions if of_topic), None)
            self.not_allowed = error, place
        if not self._troubled:
            self._troubled = True
            log.warning(
                "a commit was refused (%s: %s): it is retried, and a crash before it succeeds"
                " repeats that work",
                error.name(),
                error.str(),
            )


def _refusal(answered: list[Any]) -> KafkaError | None:
    """Errors hide in the single partitions of an answer that succeeded."""
    return next((one.error for one in answered if one.error is not None), None)
