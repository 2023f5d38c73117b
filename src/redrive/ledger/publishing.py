"""Publishing rows: handed to Kafka in order, and durable before anything is deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from redrive.config import Plain, Settings
from redrive.errors import RedriveError
from redrive.kafka.errors import BrokerError, is_of_one_message, may_be_for_another, publish_error
from redrive.kafka.handover import TAKEN_BACK, KafkaHandover, Refused
from redrive.kafka.publisher import KafkaPublisher
from redrive.ledger.admission import Admission
from redrive.ledger.held_back import Taken
from redrive.tuning import RELAY_PING, RELAY_PRODUCER_BATCH, RELAY_PUBLISH_POLL

_DEFAULTS: Final[dict[str, Plain]] = {
    # Rows already come in batches: lingering would only make them late.
    "linger.ms": 0,
    # librdkafka's own queue need not wait for the network either.
    "socket.nagle.disable": True,
}
_FIXED: Final[dict[str, Plain]] = {
    # Never: a message that timed out leaves a gap, and the next one of its key is written.
    "message.timeout.ms": 0,
}


class KafkaAwayError(RedriveError):
    """Kafka is not accepting messages; those handed over may or may not have been written."""


class Refusal(NamedTuple):
    """A row that was refused, or a row of a topic that refuses all."""

    taken: Taken
    reason: str
    whole_topic: bool


class Publishing:
    """The rows of one transaction, in flight to Kafka."""

    def __init__(self, settings: Settings, patience: float) -> None:
        self._settings = settings
        self._patience = patience
        self._admission = Admission(settings)
        self._largest_batch = RELAY_PRODUCER_BATCH
        self._publisher = self._make_publisher()
        self._on_the_way: list[tuple[KafkaHandover, Sequence[Taken]]] = []
        self._silent_for = 0.0

    def refusals(self, taken: Sequence[Taken]) -> list[Refusal]:
        """Those that Kafka would refuse; checked before any of them is handed over."""
        missing: dict[str, str] = {}
        try:
            for topic in {one.write.topic for one in taken}:
                reason = self._admission.learn(topic)
                if reason is not None:
                    missing[topic] = reason
        except BrokerError as error:
            raise KafkaAwayError(str(error)) from None
        found: list[Refusal] = []
        for one in taken if missing else self._admission.doubtful(taken):
            if one.write.topic in missing:
                found.append(Refusal(one, missing[one.write.topic], whole_topic=True))
            elif (refusal := self._admission.refusal(one.write)) is not None:
                found.append(Refusal(one, str(refusal), whole_topic=False))
        for refused in found:
            self._admission.forget(refused.taken.write.topic)
        return found

    def hand_over(self, taken: Sequence[Taken], ping: Callable[[], None]) -> None:
        """Begin to write them, in their order."""
        if self._admission.smallest_limit < self._largest_batch:
            # A batch that is larger than a topic's limit is refused, whatever is in it.
            self._wait(ping, stopping=lambda: False)
            self._largest_batch = self._admission.smallest_limit
            self._publisher = self._make_publisher()
        handed = self._publisher.hand_over([one.write for one in taken])
        self._on_the_way.append((handed, taken))

    def settle(self, ping: Callable[[], None], stopping: Callable[[], bool]) -> list[Refusal]:
        """Wait until all are durable or refused; returns the refused.

        What no broker acknowledges for a while counts as refused by its topic, so that one topic
        without a leader does not hold up the others; KafkaAwayError if no broker answers at all.
        `ping` is called regularly, so that other relays do not take this one for dead.
        """
        self._wait(ping, stopping)
        if self._write_apart():
            self._wait(ping, stopping)
        settled, self._on_the_way = self._on_the_way, []
        found = [refusal for one in settled for refusal in self._refused(*one)]
        if self._silent_for:
            self._silent_for = 0.0
            self.let_go()  # from a producer whose messages may still be written
        elif found and any(handed.ended for handed, _ in settled):
            raise KafkaAwayError(found[0].reason)
        return found

    def _write_apart(self) -> bool:
        """Write those again, each by itself, that were refused together, perhaps for one of them.

        Else they would be refused together again and again; whether there are any.
        """
        apart: list[Taken] = []
        for handed, taken in self._on_the_way:
            those = [one for one in handed.refused if may_be_for_another(one.error.name())]
            if len(those) > 1:
                suspects = {id(one.write) for one in those}
                handed.refused[:] = [one for one in handed.refused if id(one.write) not in suspects]
                apart += [one for one in taken if id(one.write) in suspects]
        if apart:
            handed = self._publisher.hand_over([one.write for one in apart], alone=True)
            self._on_the_way.append((handed, apart))
        return bool(apart)

    def let_go(self) -> None:
        """Abandon what is in flight: it will be read and written again."""
        self._on_the_way = []
        self._publisher.close()

    def check(self) -> None:
        """KafkaAwayError unless a broker answers."""
        try:
            self._admission.ask_broker()
        except BrokerError as error:
            raise KafkaAwayError(str(error)) from None

    def _wait(self, ping: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """Wait until nothing is in flight; after a long silence, purge the rest."""
        heard = pinged = time.monotonic()
        fewest = inf
        while waiting := [handed for handed, _ in self._on_the_way if handed.outstanding]:
            waiting[0].poll(RELAY_PUBLISH_POLL)
            now = time.monotonic()
            if (left := sum(handed.outstanding for handed in waiting)) < fewest:
                fewest, heard = left, now  # slow is not silent
            if now - pinged > RELAY_PING:
                ping()
                pinged = now
            patience = self._patience / 4 if stopping() else self._patience
            if now - heard > patience:
                heard, self._silent_for = now, now - heard
                waiting[0].take_back()
                self.check()  # if nobody answers at all, it is not about these topics

    def _refused(self, handed: KafkaHandover, taken: Sequence[Taken]) -> Iterator[Refusal]:
        if not handed.refused:
            return
        rows = {id(one.write): one for one in taken}
        for refused in handed.refused:
            self._admission.forget(refused.write.topic)
            yield Refusal(
                rows[id(refused.write)],
                self._reason(refused),
                whole_topic=not is_of_one_message(refused.error.name()),
            )

    def _reason(self, refused: Refused) -> str:
        topic, error = refused.write.topic, refused.error
        if error.code() in TAKEN_BACK:
            return f"{topic}: no broker acknowledged a message for {self._silent_for:.0f} s"
        return str(publish_error(topic, refused.partition, error.name(), error.str()))

    def _make_publisher(self) -> KafkaPublisher:
        batches: dict[str, Plain] = {"batch.size": self._largest_batch}
        own = {**_DEFAULTS, **self._settings.librdkafka, **batches, **_FIXED}
        return KafkaPublisher(replace(self._settings, librdkafka=own))
