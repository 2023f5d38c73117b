"""Plan: all that a run does, drawn from its seed; as JSON it can be kept, and cut down."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from redrive.durations import milliseconds

APP: Final = "shop"
NEW: Final = "new"
"""A source topic that only the next version of the app handles."""
LATE: Final = 10.0
"""How late threads may be that look at things now and then, and still see each call that hangs."""
GUARDED: Final = 0.15
DEPLOYED: Final = 0.1
"""How many plans have another version of the app."""
OUTAGES: Final = frozenset({"silence", "coordinator", "leaderless", "suspend", "recreate"})
"""Faults during which Kafka may not answer somebody for long."""


@dataclass(frozen=True)
class PlannedRecord:
    """A record that is written to a source topic."""

    at: float
    partition: int
    key: str
    behaviour: str
    """What its handler does: the word before the colon, with a number behind it."""
    topic: str = "in"


@dataclass(frozen=True)
class Fault:
    """Something goes wrong."""

    at: float
    kind: str
    seconds: float = 0.0
    which: int = 0


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    delivery: str = "at-least-once"
    ordering: str = "key"
    concurrency: int = 4
    form: str = "plain"
    first: str = "none"
    delays: str = "2s 3s"
    timeout: float | None = None
    partitions: int = 1
    workers: int = 1
    static: bool = False
    start_from: str = "earliest"
    max_in_flight: int = 10_000
    sticky: float = 0.5
    stall: float = 0.0
    lines: float = 0.0
    late: float = 2.0
    latency: float = 0.002
    lose_answers: float = 0.0
    refuse_commits: float = 0.0
    queue_size: int = 100_000
    guard: str = ""
    """Whether handlers have a guard, and how they find out about an outage: fail, say."""
    records: tuple[PlannedRecord, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        return ("in", NEW) if self.is_deployed else ("in",)

    @property
    def is_deployed(self) -> bool:
        """Whether another version of the app comes."""
        return any(fault.kind == "deploy" for fault in self.faults)

    @property
    def dead_topic(self) -> str:
        return f"{APP}.dead"

    @property
    def delay_topics(self) -> dict[str, int]:
        return {f"{APP}.retry.{delay}": milliseconds(delay) for delay in self.delays.split()}

    @property
    def rooms(self) -> tuple[str, ...]:
        """The topics in which records wait."""
        return (*self.delay_topics, *([f"{APP}.retry.behind"] if self.is_strict else []))

    @property
    def is_strict(self) -> bool:
        return self.ordering == "strict"

    @property
    def at_hand(self) -> tuple[int, int]:
        """In strict order, how many wait in memory, and how many of a key are let go at once."""
        chances = random.Random(self.seed)
        return chances.choice([1, 3, 1000]), chances.choice([1, 3, 100])

    @property
    def parks(self) -> int:
        """How many failures of one record are retried, at least."""
        return len(self.delays.split())

    @property
    def first_tries(self) -> int:
        """How many tries there are before a record is parked."""
        return 1 if self.first == "none" else 5

    @property
    def has_outbox(self) -> bool:
        return "outbox" in self.delivery

    @property
    def has_database(self) -> bool:
        return self.delivery in ("idempotent", "outbox", "idempotent+outbox")

    @property
    def sends_once(self) -> bool:
        """Whether what handlers send is there once, whatever happens."""
        return self.delivery in ("transaction", "idempotent+outbox")

    @property
    def clocks_jump(self) -> bool:
        return any(fault.kind == "clock" for fault in self.faults)

    @property
    def has_outages(self) -> bool:
        """Whether a commit may have to wait."""
        kinds = {fault.kind for fault in self.faults}
        return bool(kinds & OUTAGES) or bool(self.lose_answers or self.refuse_commits)

    @property
    def gives_up_late(self) -> bool:
        """Whether calls may take longer than their time-out before anybody looks."""
        stands_still = any(fault.kind == "suspend" for fault in self.faults)
        return stands_still or bool(self.stall) or self.late > LATE

    @property
    def calm(self) -> bool:
        """Whether nothing happens that may repeat work."""
        return not (self.faults or self.lose_answers or self.refuse_commits) and self.workers == 1

    def to_json(self) -> str:
        """Without what is as ever."""
        given = asdict(self)
        for record in given["records"]:
            if record["topic"] == "in":
                del record["topic"]
        usual = asdict(Plan(self.seed))
        kept = {name: value for name, value in given.items() if value != usual[name]}
        return json.dumps({"seed": self.seed, **kept})

    @classmethod
    def of_json(cls, text: str) -> Plan:
        given = json.loads(text)
        records = tuple(PlannedRecord(**each) for each in given.pop("records", ()))
        faults = tuple(Fault(**each) for each in given.pop("faults", ()))
        return cls(**given, records=records, faults=faults)


@dataclass
class Drawn:
    """Draws a plan."""

    seed: int
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def plan(self) -> Plan:
        choose, chance = self.random.choice, self.random.random
        form = choose(["plain", "plain", "plain", "manual", "batch"])
        deliveries = ["at-least-once", "at-least-once", "transaction", "transaction"]
        deliveries += ["idempotent", "outbox", "idempotent+outbox"]
        delivery = choose(deliveries[: 2 if form == "manual" else 7])
        partitions = choose([1, 1, 2, 3])
        calm = chance() < 0.2
        workers = 1 if calm else choose([1, 1, 2, 3])
        plan = Plan(
            self.seed,
            delivery=delivery,
            ordering=choose(["key", "key", "partition", "unordered"]),
            concurrency=choose([1, 2, 4, 8]),
            form=form,
            first=choose(["none", "none", "in place", "give back"]),
            delays=choose(["2s", "1s 3s", "2s 2s 5s"]),
            timeout=choose([None, None, 2.0]),
            partitions=partitions,
            workers=workers,
            static=chance() < 0.4,
            start_from="latest" if chance() < 0.15 else "earliest",
            max_in_flight=choose([10_000, 10_000, 30, 5]),
            sticky=choose([0.0, 0.5, 0.9]),
            stall=0.0 if calm else choose([0.0, 0.0, 0.002, 0.01]),
            lines=choose([0.0, 0.0, 0.0, 0.005]),
            late=choose([4.0, 20.0, 60.0]),
            latency=choose([0.0005, 0.002, 0.02]),
            lose_answers=0.0 if calm else choose([0.0, 0.0, 0.05, 0.3]),
            refuse_commits=0.0 if calm else choose([0.0, 0.0, 0.2]),
            queue_size=choose([100_000, 100_000, 3]),
            records=self._records(form, partitions),
        )
        plan = replace(plan, records=self._fitting(plan))
        return plan if calm else _guarded(_deployed(replace(plan, faults=self._faults(plan))))

    def _records(self, form: str, partitions: int) -> tuple[PlannedRecord, ...]:
        count = self.random.choice([3, 10, 25, 60])
        keys = self.random.choice([1, 3, 10])
        span = self.random.choice([0.0, 0.5, 5.0])
        words = self._words(form)
        return tuple(
            PlannedRecord(
                at=round(self.random.random() * span, 3),
                partition=self.random.randrange(partitions),
                key=f"k{self.random.randrange(keys)}",
                behaviour=self.random.choice(words)(),
            )
            for _ in range(count)
        )

    def _words(self, form: str) -> list[Any]:
        rand = self.random

        def seconds() -> str:
            return f"{rand.choice([0.001, 0.03, 0.3]):g}"

        usual = [lambda: "done", lambda: "send"] * rand.choice([1, 5])
        odd = [
            lambda: "twins",
            lambda: f"fail:{rand.randint(1, 2)}",
            lambda: f"send:{seconds()}",
            lambda: f"slow:{seconds()}",
            lambda: "bury",
            lambda: "spoilt",
            lambda: "hang",
        ]
        if form == "manual":
            odd += [lambda: "text", lambda: "twice", lambda: f"later:{seconds()}"] * 2
            usual += [lambda: f"later:{seconds()}"]
        if form == "batch":
            odd += [lambda: "text"]
        return usual + rand.sample(odd, rand.randint(0, len(odd)))

    def _fitting(self, plan: Plan) -> tuple[PlannedRecord, ...]:
        """What a handler of that form and time-out can do without being buried for it."""
        most = min(plan.parks, 2)

        def fit(record: PlannedRecord) -> PlannedRecord:
            word, _, number = record.behaviour.partition(":")
            if word == "fail":
                return replace(record, behaviour=f"fail:{min(int(number), most)}")
            if (word == "hang" and plan.timeout is None) or (word == "spoilt" and plan.has_outbox):
                return replace(record, behaviour="done")
            return record

        return tuple(sorted(map(fit, plan.records), key=lambda each: each.at))

    def _faults(self, plan: Plan) -> tuple[Fault, ...]:
        rand = self.random
        kinds = [
            "kill",
            "kill",
            "stop",
            "suspend",
            "silence",
            "coordinator",
            "leaderless",
            "refuse out",
            "refuse dead",
            "refuse parked",
            "fatal",
            "join",
            "mistake",
            "recreate",
            "database",
            "truncate",
            "clock",
        ]
        kinds = rand.sample(kinds, rand.randint(1, 5))
        return tuple(
            sorted(
                (
                    Fault(
                        at=round(rand.random() * rand.choice([1.0, 8.0]), 3),
                        kind=rand.choice(kinds),
                        seconds=rand.choice([0.05, 1.0, 5.0, 35.0]),
                        which=rand.randrange(8),
                    )
                    for _ in range(rand.randint(0, 5))
                ),
                key=lambda each: each.at,
            )
        )


def _deployed(plan: Plan) -> Plan:
    """Now and then another version comes, is perhaps taken back, and comes again.

    With chances of its own, so that all else in the plan of a seed is what it was without it.
    """
    rand = random.Random(-1 - plan.seed)
    if rand.random() > DEPLOYED or plan.start_from == "latest":
        return plan
    times = sorted(round(rand.random() * 8.0, 3) for _ in range(rand.choice([1, 1, 3])))
    deploys = [Fault(at, "deploy", which=rand.randrange(8)) for at in times]
    records = [replace(each, topic=rand.choice(["in", NEW])) for each in plan.records]
    faults = sorted([*plan.faults, *deploys], key=lambda each: each.at)
    return replace(plan, records=tuple(records), faults=tuple(faults))


def _guarded(plan: Plan) -> Plan:
    """Now and then handlers have a guard, and what they depend on goes away: chances as above."""
    rand = random.Random(-1_000_000_000 - plan.seed)
    if rand.random() > GUARDED:
        return plan
    outages = [
        Fault(round(rand.random() * 4.0, 3), "outage", rand.choice([0.3, 3.0, 20.0]))
        for _ in range(rand.choice([1, 1, 2]))
    ]
    faults = sorted([*plan.faults, *outages], key=lambda each: each.at)
    return replace(plan, guard=rand.choice(["fail", "say"]), faults=tuple(faults))


def drawn(seed: int) -> Plan:
    """The plan of a seed."""
    return Drawn(seed).plan()


def strict(plan: Plan) -> Plan:
    """The same in strict order, as far as that is not refused."""
    behaviours = {"text": "done"} if plan.form == "batch" else {}
    return replace(
        plan,
        ordering="strict",
        guard="",
        form="plain" if plan.form == "batch" else plan.form,
        delivery="at-least-once" if plan.delivery == "transaction" else plan.delivery,
        first="in place" if plan.first == "give back" else plan.first,
        records=tuple(
            replace(each, behaviour=behaviours.get(each.behaviour, each.behaviour), topic="in")
            for each in plan.records
        ),
        faults=tuple(each for each in plan.faults if each.kind not in ("deploy", "outage")),
    )
