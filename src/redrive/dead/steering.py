"""Steering: what operators say about parked records, in somebody's name.

Nothing is moved here. A rule is written, and whoever runs the app goes by it within seconds.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redrive.app import rules_topic_of
from redrive.dead.desk import UnderWayError
from redrive.dead.parked import (
    Parked,
    ahead,
    delay_topics,
    group_of,
    id_of,
    parked,
    what_is_said,
)
from redrive.errors import ConfigurationError, NotReadyError
from redrive.loading import target_of
from redrive.parked_rules import (
    Kind,
    Match,
    ParkedRule,
    left_behind,
    open_rules,
    read_rules,
    rule_write,
)
from redrive.record import TopicPartition

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Clock, Log, Progress, Publisher


@dataclass
class SteeringPlan:
    """What a rule would be about; nothing is written."""

    kind: Kind
    match: Match
    topics: Counter[str] = field(default_factory=Counter)
    """By delay topic, how many of what waits now fit."""
    moved: int = 0
    """How many others wait before them, and hop on for the time that they have left."""
    whole: bool = True
    """Whether all that wait were looked at."""
    ends: dict[str, dict[str, int]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many records fit."""
        return self.topics.total()

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind,
            "match": asdict(self.match),
            "count": self.count,
            "topics": dict(self.topics),
            "moved": self.moved,
        }


class Steering:
    """Holds parked records, lets them run now, and ends holds: by rules that runs go by."""

    def __init__(
        self,
        app: App,
        *,
        log: Log,
        progress: Progress,
        publisher: Publisher,
        clock: Clock,
        by: str,
    ) -> None:
        self._app = app
        self._log = log
        self._progress = progress
        self._publisher = publisher
        self._clock = clock
        self._by = by

    # Looking

    def rules(self) -> list[ParkedRule]:
        """All rules, the newest first: also those that have ended."""
        found = read_rules(self._log, self._app.rules_topic).values()
        return sorted(found, key=lambda each: (each.at, each.id), reverse=True)

    def left_behind(self) -> str:
        """What is said of holds of the app's old name; empty if there are none."""
        was = self._app.was
        if was is None:
            return ""
        rules = read_rules(self._log, rules_topic_of(was))
        return left_behind(self._app.name, was, rules, masked=bool(self._app.masked))

    def told(self, rule: ParkedRule) -> ParkedRule:
        """One of the rules as people may see it: without ids, where fields are masked."""
        return rule.without_values() if self._app.masked else rule

    def parked(self, most: int | None = None) -> list[Parked]:
        """What waits, with what is held and what is to run now; `most` of each topic are read."""
        rules = open_rules(read_rules(self._log, self._app.rules_topic))
        return [*parked(self._app, self._log, self._progress, rules, most)]

    def under_way(self, rule: ParkedRule) -> bool:
        """Whether a rule still says something: a run-now is over when all of it was passed."""
        if rule.status != "open" or rule.kind == "hold":
            return rule.status == "open"
        return any(
            self._log.partitions(topic)
            and self._log.topic_id(topic) == rule.topic_ids.get(topic)
            and self._is_behind(topic, ends)
            for topic, ends in rule.ends.items()
        )

    def plan(self, kind: Kind, match: Match, most: int | None = None) -> SteeringPlan:
        """How many records a rule would be about now; `most` of each topic are read."""
        self._check(kind, match)
        found = SteeringPlan(kind, match)
        for topic in delay_topics(self._app, self._log):
            topic_id = self._log.topic_id(topic)
            ends: dict[str, int] = {}
            others: Counter[int] = Counter()
            for number, record in enumerate(ahead([topic], self._log, self._progress)):
                if number == most:
                    found.whole = False
                    break
                if match.fits(topic, group_of(record), id_of(record)):
                    found.topics[topic] += 1
                    ends[str(record.partition)] = record.offset + 1
                    found.moved += others.pop(record.partition, 0)
                else:
                    others[record.partition] += 1
            if ends:
                found.ends[topic], found.topic_ids[topic] = ends, topic_id
        return found

    def plan_release(self, rules: Sequence[ParkedRule], *, run_now: bool = False) -> SteeringPlan:
        """How many records that are held now would not be any more, as no other hold has them.

        With `run_now` also those that others hold: what lets them go is said last.
        """
        found, ended = SteeringPlan("hold", Match()), {rule.id for rule in rules}
        now = open_rules(read_rules(self._log, self._app.rules_topic))
        left = [rule for rule in now if rule.id not in ended]
        holds = [rule for rule in rules if rule.kind == "hold"] if run_now else []
        for topic in delay_topics(self._app, self._log):
            topic_id = self._log.topic_id(topic)
            for record in ahead([topic], self._log, self._progress):
                held = what_is_said(now, record, topic_id).order == "hold"
                goes = what_is_said(holds, record, topic_id).order is not None
                stays = what_is_said(left, record, topic_id).order == "hold"
                found.topics[topic] += held and (goes or not stays)
        return found

    # Saying

    def hold(self, match: Match, why: str = "") -> ParkedRule:
        """Have what fits, now or later, wait until the rule is ended."""
        self._check("hold", match)
        self._check_not_held(match)
        rule = self._new("hold", match, why)
        self._write([rule])
        return rule

    def run_now(self, match: Match, why: str = "") -> ParkedRule:
        """Have what fits and waits now be due at once."""
        self._check_alone()
        rule = self._let_go(match, why)
        if rule is None:
            raise ConfigurationError(f"no parked record matches {match}")
        self._write([rule])
        self._check_first([rule])
        return rule

    def chosen(self, match: Match, rules: Sequence[str] = ()) -> list[ParkedRule]:
        """The open rules of these ids; the holds with that very match; without both, all holds."""
        found = {rule.id: rule for rule in self.rules() if rule.status == "open"}
        unknown = [each for each in rules if each not in found]
        if unknown:
            raise UnderWayError(f"there is no open rule {unknown[0]}; open: {self._named(found)}")
        holds = [rule for rule in found.values() if rule.kind == "hold"]
        if rules:
            return [found[each] for each in rules]
        chosen = [rule for rule in holds if rule.match == match] if match else holds
        if not chosen:
            raise UnderWayError(f"there is no such hold; open rules: {self._named(found)}")
        return chosen

    def release(
        self, rules: Sequence[ParkedRule], why: str = "", *, run_now: bool = False
    ) -> list[ParkedRule]:
        """End rules. What was held runs when it is due next; with `run_now`, at once.

        Returns the rules as they are now, those that let records go among them.
        """
        if run_now:
            self._check_alone()
        told = f"ended by {self._by}" + (f": {why}" if why else "")
        said = [self._ended(rule, told) for rule in rules]
        if run_now:
            holds = [rule for rule in rules if rule.kind == "hold"]
            said += [rule for each in holds if (rule := self._let_go(each.match, why))]
        self._write(said)
        self._check_first([rule for rule in said if rule.kind == "run-now"])
        return said

    def _let_go(self, match: Match, why: str) -> ParkedRule | None:
        plan = self.plan("run-now", match)
        if not plan.count:
            return None
        rule = self._new("run-now", match, why)
        return rule.change(ends=plan.ends, topic_ids=plan.topic_ids)

    def _check_alone(self) -> None:
        """See that no run-now is under way; end those that are over."""
        rules = [each for each in self.rules() if (each.kind, each.status) == ("run-now", "open")]
        for rule in rules:
            if self.under_way(rule):
                raise _in_the_way(rule)
        self._write([self._ended(rule, "all of it was passed") for rule in rules])

    def _check_first(self, mine: Sequence[ParkedRule]) -> None:
        """See that nobody else has begun a run-now just before; end one's own if somebody has."""
        running = {rule.id: rule for rule in mine if rule.status == "open"}
        if not running:
            return
        for rule in read_rules(self._log, self._app.rules_topic).values():
            if rule.id in running:
                return
            if (rule.kind, rule.status) == ("run-now", "open") and self.under_way(rule):
                told = f"{rule.id} of {rule.by} was first"
                self._write([self._ended(each, told) for each in running.values()])
                raise _in_the_way(rule)

    def _check_not_held(self, match: Match) -> None:
        """See that the same is not held already; after a run-now, holding it again means more."""
        for rule in self.rules():
            if rule.status == "open" and rule.kind == "run-now":
                return
            if rule.status == "open" and rule.match == match:
                raise UnderWayError(f"{rule.id} of {rule.by} holds the same records already")

    def _ended(self, rule: ParkedRule, told: str) -> ParkedRule:
        return rule.change(status="ended", said=told, updated=self._clock.now())

    def _new(self, kind: Kind, match: Match, why: str) -> ParkedRule:
        now = self._clock.now()
        at = datetime.fromtimestamp(now / 1000, UTC)
        name = f"{kind}-{at:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        return ParkedRule(id=name, kind=kind, match=match, by=self._by, at=now, why=why)

    def _write(self, rules: Sequence[ParkedRule]) -> None:
        topic = self._app.rules_topic
        if not self._log.partitions(topic):
            raise NotReadyError(
                f"the topic {topic} is missing, which keeps what is said about parked records: run"
                f" `redrive topics {target_of(self._app)} --apply`"
            )
        self._publisher.publish([rule_write(topic, rule) for rule in rules])

    def _is_behind(self, topic: str, ends: Mapping[str, int]) -> bool:
        places = {TopicPartition(topic, int(number)): end for number, end in ends.items()}
        committed = self._progress.committed(places)
        return any(
            place not in committed or committed[place].offset < end for place, end in places.items()
        )

    def _check(self, kind: Kind, match: Match) -> None:
        if not match:
            raise ConfigurationError(
                "say which records are meant: --id, --group or --topic (a delay topic)"
            )
        if not all((*match.ids, *match.groups, *match.topics)):
            raise ConfigurationError(
                "one of --id, --group and --topic is empty (a variable that is not set?): every"
                " record would match"
            )
        there = delay_topics(self._app, self._log) if kind == "run-now" else self._app.delay_topics
        for topic in match.topics:
            if topic not in there:
                raise ConfigurationError(
                    f"{topic} is not a delay topic in which the app {self._app.name} parks"
                    f" records; there are: {', '.join(there) or 'none'}"
                )

    def _named(self, rules: dict[str, ParkedRule]) -> str:
        told = map(self.told, rules.values())
        return ", ".join(f"{rule.id} ({rule.match})" for rule in told) or "none"


def _in_the_way(rule: ParkedRule) -> UnderWayError:
    return UnderWayError(
        f"{rule.id} of {rule.by} is under way: records that make way for it could be missed. Wait"
        f" until it is over, or end it with `redrive parked release --rule {rule.id}`"
    )
