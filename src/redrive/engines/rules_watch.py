"""RulesWatch: what operators have said about parked records, asked of Kafka now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.app import rules_topic_of
from redrive.kafka.errors import BrokerError, MissingTopicError, NotAllowedError
from redrive.parked_rules import ParkedRule, left_behind, open_rules, read_rules
from redrive.record import TopicPartition
from redrive.tuning import PARKED_RULES_EVERY

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Log

log: Final = logging.getLogger("redrive")

_DOES_WITHOUT: Final = (NotAllowedError, MissingTopicError)
"""Most runs never need any. A topic that was there a moment ago is as good as missing."""


class RulesWatch:
    """The open rules of one app; most apps have none, and not even the topic for them."""

    def __init__(
        self,
        app: App,
        kafka_log: Log,
        *,
        every: float = PARKED_RULES_EVERY,
        on_change: Callable[[tuple[ParkedRule, ...]], None] = lambda _: None,
    ) -> None:
        self.rules: tuple[ParkedRule, ...] = ()
        self._app = app
        self._topic = app.rules_topic
        self._log = kafka_log
        self._every = every
        self._on_change = on_change
        self._looked_at = -inf
        self._seen: tuple[str, int] | None = None
        """The topic's id and its end, when it was read last."""
        self._known = False
        """Whether it is known which there are."""
        self._told = False
        self._missing = False
        """Whether the topic was missing at the last look."""

    def look(self) -> tuple[ParkedRule, ...]:
        """The rules, as they are; Kafka is asked if it is time."""
        if monotonic() - self._looked_at < self._every:
            return self.rules
        self._looked_at = monotonic()
        try:
            rules = self._read()
        except BrokerError as error:
            if not self._known and not isinstance(error, _DOES_WITHOUT):
                raise  # what is held must not begin
            # A run does without, or with those that it knows: nobody waits for this topic.
            if not self._told:
                log.warning("rules about parked records cannot be read: %s", error)
            self._told = True
            self._looked_at = monotonic()  # brokers that do not answer have taken their time
            return self.rules
        if not self._known:
            self._tell_left_behind()
        self._known, self._told = True, False
        if rules != self.rules:
            for rule in rules:
                if rule not in self.rules:
                    told = rule.without_values() if self._app.masked else rule
                    log.info("parked: %s of %s by %s", told.kind, told.match, told.by)
            self.rules = rules
            self._on_change(rules)
        return self.rules

    def _tell_left_behind(self) -> None:
        """Say which holds of the app's old name do not count: nobody else would."""
        if (was := self._app.was) is None:
            return
        try:
            rules = read_rules(self._log, rules_topic_of(was))
        except BrokerError:
            return  # there may be none
        if said := left_behind(self._app.name, was, rules, masked=bool(self._app.masked)):
            log.warning("%s", said)

    def _read(self) -> tuple[ParkedRule, ...]:
        was_missing, self._missing = self._missing, not self._log.partitions(self._topic)
        if self._missing:
            # Once is not enough to let go of what is known to be held.
            self._seen = None
            return () if was_missing else self.rules
        end = self._log.bounds(TopicPartition(self._topic, 0))[1]
        seen = self._log.topic_id(self._topic), end
        if seen == self._seen:
            return self.rules
        rules = open_rules(read_rules(self._log, self._topic))
        self._seen = seen
        return rules
