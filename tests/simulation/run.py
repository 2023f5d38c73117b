"""Run: workers under a supervisor, records that come, and faults, until everything is at rest."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from redrive.config import Settings
from redrive.engines.worker import worker as engine
from redrive.engines.worker.options import Options
from redrive.kafka.errors import BrokerError
from redrive.ports import Position
from redrive.processing.order import key_gate
from redrive.processing.order.blocked_keys import BlockedKeys
from redrive.record import TopicPartition, Write
from simulation.cluster import Cluster
from simulation.history import Entry, History
from simulation.patching import patched
from simulation.plan import APP, OUTAGES, Fault, Plan
from simulation.ports import Connected
from simulation.primitives import Running
from simulation.producer import MISTAKE
from simulation.scheduler import Chances, Killed, Process, World
from simulation.shop import SPOILT, Shop

PATIENCE: Final = 120.0
"""Virtual seconds in which something must move, once all faults are over."""
LONGEST: Final = 1500.0
"""Virtual seconds in which everything must have come to rest."""


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    plan: Plan
    violation: str | None
    seconds: float
    """Virtual ones."""
    steps: int
    switches: int
    calls: int
    faults: Counter[str]
    trace: str
    """The same for two runs that did the same."""


class Supervised:
    """One place at which a worker runs, again and again."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._number = number
        self.process = Process(f"worker-{number}")
        self.worker: Any = None
        self.stopped_until = 0.0
        self.starts = 0
        self.wanted = True

    def begin(self) -> None:
        """Keep a worker running here, until the simulation ends."""
        self._run.world.spawn(self._supervise, "supervisor", self._run.world.machinery)

    def kill(self) -> None:
        self._run.world.kill(self.process)

    def _supervise(self) -> None:
        world = self._run.world
        while self.wanted:
            self.starts += 1
            self.process = process = Process(f"worker-{self._number}.{self.starts}")
            world.join(world.spawn(partial(self._work, process), "main", process), None)
            self.worker = None
            if not process.dead:
                world.kill(process)
            world.sleep(0.5 + world.random.random())

    def _work(self, process: Process) -> None:
        run, plan = self._run, self._run.plan
        shop = Shop(plan, run.history, process, is_new=run.is_new)
        options = Options(
            start_from=plan.start_from,  # type: ignore[arg-type]  # -- one of its words
            instance=f"place-{self._number}" if plan.static else None,
            dynamic=not plan.static,
            max_in_flight=plan.max_in_flight,
            drain="2s",
            revoke_wait="1s",
        )
        try:
            worker = engine.Worker(shop.app, Settings(bootstrap="sim:9092"), options, "shop:app")
            worker.start()
            self.worker = worker
            worker.await_termination()
        except Killed:
            raise
        except BaseException as error:
            run.ended(process, error)


class Run:
    """One run of a plan."""

    def __init__(self, plan: Plan, tell: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        chances = Chances(sticky=plan.sticky, stall=plan.stall, lines=plan.lines, late=plan.late)
        self.world = World(plan.seed, chances)
        self.cluster = Cluster(self.world, plan.seed)
        self.history = History(self.world, plan)
        self.history.tell = self._tell = tell
        self.places = [Supervised(self, number) for number in range(plan.workers)]
        self.is_new = False
        """Whether the new version of the app is started."""
        self._ended: list[str] = []
        self._began = self.world.now

    def go(self) -> Result:
        """Run it to its end."""
        Running.world, Connected.cluster = self.world, self.cluster
        with self._log_lines(), patched(), _windows(self.plan):
            self._prepare()
            try:
                self._drive()
            finally:
                self.world.end()
        violation = self.history.violation
        return Result(
            self.plan,
            None if violation is None else str(violation),
            self.world.now - self._began,
            self.world.steps,
            self.world.switches,
            self.history.total_calls,
            self.world.faults,
            f"{self.world.steps} {self.world.switches} {self.world.random.random()!r}",
        )

    @contextmanager
    def _log_lines(self) -> Iterator[None]:
        """They are part of the story if it is told, and nobody's business otherwise."""
        logger, lines = logging.getLogger("redrive"), _Lines(self)
        before = logger.level
        # Never `logger.level = ...`: loggers remember which levels are enabled until setLevel().
        logger.setLevel(logging.CRITICAL + 1 if self._tell is None else logging.DEBUG)
        if self._tell is not None:
            logger.addHandler(lines)
        try:
            yield
        finally:
            logger.removeHandler(lines)
            logger.setLevel(before)

    def ended(self, process: Process, error: BaseException) -> None:
        """A worker has ended by an error."""
        text = f"{process.name}: {type(error).__name__}: {error}"
        self._ended.append(text)
        self.history.disturbed = True
        if not self._may_end(error):
            self.history.fail("ended", text)

    def _may_end(self, error: BaseException) -> bool:
        """Whoever cannot reach Kafka when it starts says so, and is started again."""
        if MISTAKE in str(error):
            return True
        return isinstance(error, BrokerError) and not OUTAGES.isdisjoint(self.world.faults)

    # How it begins

    def _prepare(self) -> None:
        plan, broker = self.plan, self.cluster.broker
        for topic in (*plan.sources, "out", plan.dead_topic):
            broker.create(topic, plan.partitions)
        for topic in plan.delay_topics:
            broker.create(topic, plan.partitions, {"message.timestamp.type": "LogAppendTime"})
        for topic in set(plan.rooms) - set(plan.delay_topics):
            broker.create(topic, plan.partitions)
        cluster = self.cluster
        cluster.latency = plan.latency
        cluster.lose_answers = plan.lose_answers
        cluster.refuse_commits = plan.refuse_commits
        cluster.queue_size = plan.queue_size
        cluster.database.lose_answers = plan.lose_answers
        cluster.watch(self.history)
        self.history.disturbed = not plan.calm
        cluster.begin()

    # What happens

    def _drive(self) -> None:
        world = self.world
        for place in self.places:
            place.begin()
        events = [(each.at, 0, number, each) for number, each in enumerate(self.plan.records)]
        events += [(each.at, 1, number, each) for number, each in enumerate(self.plan.faults)]
        last = self._began
        for at, _, number, event in sorted(events, key=lambda each: each[:3]):
            self._wait_until(self._began + at)
            if self.history.violation is not None:
                return
            if isinstance(event, Fault):
                self._fault(event)
                last = max(last, world.now + event.seconds)
            else:
                self._write(number, event)
        self._wait_until(last)
        while not self.cluster.broker.partitions("in"):
            world.sleep(0.5)
        self.cluster.heal()
        self.history.moved_at = healed = world.now
        while self._may_move(healed) and self.history.violation is None:
            if self._is_at_rest():
                break
            world.sleep(0.5)
        else:
            if self.history.violation is None:
                self.history.fail("stuck", self._what_is_left())
        self._look_at_deaths()
        if self.history.violation is None:
            self.history.check_all()

    def _may_move(self, healed: float) -> bool:
        """Whether something has moved not long ago, and it does not go on for ever."""
        now = self.world.now
        return now - self.history.moved_at < PATIENCE and now - healed < LONGEST

    def _wait_until(self, time: float) -> None:
        while self.world.now < time and self.history.violation is None:
            self.world.sleep(min(1.0, time - self.world.now))
            self._look_at_deaths()
            self._look_at_memory()

    def _write(self, number: int, record: Any) -> None:
        if not self.cluster.broker.partitions(record.topic):
            return  # nobody can write to it
        uid, key = b"r%d" % number, record.key.encode()
        place = TopicPartition(record.topic, record.partition)
        offset = self.cluster.broker.bounds(place)[1]
        entry = Entry(uid, place, offset, key, record.behaviour, self.world.now)
        self.history.entries[uid] = entry
        self.history.sources[place][offset] = entry
        if record.behaviour == "spoilt":
            self.cluster.spoilt[SPOILT + uid] = ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD")[number % 2]
        self.cluster.append([Write(record.topic, key, uid, (), record.partition)])

    def _is_at_rest(self) -> bool:
        self._look_at_deaths()
        self._look_at_memory()
        running = [each for each in self.history.running if not each.process.dead]
        if self.history.unresolved() or running:
            return False
        broker, committed = self.cluster.broker, self.cluster.committed(APP)
        for topic in (*self.plan.sources, *self.plan.rooms):
            for number in range(broker.partitions(topic)):
                place = TopicPartition(topic, number)
                if committed.get(place, Position(-1)).offset < broker.bounds(place)[1]:
                    return False
        return True

    def _what_is_left(self) -> str:
        broker, committed = self.cluster.broker, self.cluster.committed(APP)
        behind = [
            f"{place} at {committed.get(place, Position(-1)).offset} of {broker.bounds(place)[1]}"
            for topic in (*self.plan.sources, *self.plan.rooms)
            for number in range(broker.partitions(topic))
            if committed.get(place := TopicPartition(topic, number), Position(-1)).offset
            < broker.bounds(place)[1]
        ]
        open_ones = [f"{each.uid!r} ({each.behaviour})" for each in self.history.unresolved()]
        return f"nothing moves: {', '.join(behind)}; open: {', '.join(open_ones[:5])}"

    def _look_at_deaths(self) -> None:
        for death in self.world.deaths:
            self.history.fail("died", f"thread {death.thread} by {death.error!r}")

    def _look_at_memory(self) -> None:
        for worker in [place.worker for place in self.places if place.worker is not None]:
            for each in list(worker.assignment.partitions.values()):
                if each.in_flight > self.plan.max_in_flight + 100:
                    self.history.fail("memory", f"{each.in_flight} records of {each.place}")

    # Faults

    def _fault(self, fault: Fault) -> None:
        self.world.faults[fault.kind] += 1
        if self._tell is not None:
            self._tell(f"{self.world.now - 1000:9.4f} FAULT {fault}")
        act: Callable[[Fault], None] = getattr(self, "_" + fault.kind.replace(" ", "_"))
        act(fault)

    def _place(self, fault: Fault) -> Supervised:
        return self.places[fault.which % len(self.places)]

    def _kill(self, fault: Fault) -> None:
        self._place(fault).kill()

    def _stop(self, fault: Fault) -> None:
        worker = self._place(fault).worker
        if worker is not None:
            worker.lifecycle.stopping.set()

    def _suspend(self, fault: Fault) -> None:
        self._place(fault).process.suspended_until = self.world.now + fault.seconds

    def _silence(self, fault: Fault) -> None:
        self.cluster.silent_until = self.world.now + fault.seconds

    def _coordinator(self, fault: Fault) -> None:
        self.cluster.coordinator_until = self.world.now + fault.seconds

    def _leaderless(self, fault: Fault) -> None:
        topics = [*self.plan.sources, "out", self.plan.dead_topic, *self.plan.rooms]
        place = TopicPartition(topics[fault.which % len(topics)], 0)
        self.cluster.leaderless[place] = self.world.now + fault.seconds

    def _refuse(self, topic: str, fault: Fault) -> None:
        # Not a missing permission: that ends the run.
        reasons = ("NOT_ENOUGH_REPLICAS", "TOPIC_EXCEPTION", "_MSG_TIMED_OUT")
        reason = reasons[fault.which % len(reasons)]
        self.cluster.refusing[topic] = (reason, self.world.now + fault.seconds)

    def _refuse_out(self, fault: Fault) -> None:
        self._refuse("out", fault)

    def _refuse_dead(self, fault: Fault) -> None:
        self._refuse(self.plan.dead_topic, fault)

    def _refuse_parked(self, fault: Fault) -> None:
        self._refuse(min(self.plan.delay_topics), fault)

    def _fatal(self, fault: Fault) -> None:
        """Producers fail for good, the busy ones first."""
        from confluent_kafka import KafkaError

        alive = [each for each in self.cluster.producers if not each.is_dead]
        busy = [each for each in alive if each.is_busy] or alive
        for each in busy[:1]:
            each.die(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def _join(self, fault: Fault) -> None:
        """Another worker comes."""
        place = Supervised(self, len(self.places))
        self.places.append(place)
        place.begin()

    def _mistake(self, fault: Fault) -> None:
        """A mistake of ours: something in a worker raises what nobody expects."""
        self.cluster.mistakes += 1

    def _recreate(self, fault: Fault) -> None:
        """The source topic is deleted, and made again."""
        broker = self.cluster.broker
        if not broker.partitions("in"):
            return
        broker.delete("in")
        self.history.forgotten("in")
        self.cluster.later(min(fault.seconds, 5.0), self._create_again)

    def _create_again(self) -> None:
        self.cluster.broker.create("in", self.plan.partitions)
        self.cluster.wake_readers()

    def _truncate(self, fault: Fault) -> None:
        """Retention deletes what nobody has read yet."""
        place = TopicPartition("in", fault.which % self.plan.partitions)
        if not self.cluster.broker.partitions("in"):
            return
        start, end = self.cluster.broker.bounds(place)
        before = start + (end - start) // 2
        self.cluster.broker.truncate(place, before)
        for offset, entry in self.history.sources[place].items():
            entry.gone = entry.gone or offset < before

    def _deploy(self, fault: Fault) -> None:
        """Another version of the app comes, or the one before it again; in the end the new one."""
        deploys = [each for each in self.plan.faults if each.kind == "deploy"]
        self.is_new = (len(deploys) - deploys.index(fault)) % 2 == 1
        for place in self.places:
            if fault.which % 2 or place.worker is None:
                place.kill()
            else:
                place.worker.lifecycle.stopping.set()

    def _outage(self, fault: Fault) -> None:
        """What handlers depend on goes away."""
        self.history.away_until = self.world.now + fault.seconds

    def _database(self, fault: Fault) -> None:
        self.cluster.database.down_until = self.world.now + fault.seconds

    def _clock(self, fault: Fault) -> None:
        by = int(fault.seconds * 1000) * (1 if fault.which % 2 else -1)
        self._place(fault).process.clock_ahead += by


@contextmanager
def _windows(plan: Plan) -> Iterator[None]:
    """In strict order, less is at hand than in life: all that comes of it happens often."""
    ahead: dict[str, Any] = BlockedKeys.__init__.__kwdefaults__
    before = key_gate.FOLLOWERS_AT_HAND, ahead["ahead"]
    if plan.is_strict:
        key_gate.FOLLOWERS_AT_HAND, ahead["ahead"] = plan.at_hand
    try:
        yield
    finally:
        key_gate.FOLLOWERS_AT_HAND, ahead["ahead"] = before


class _Lines(logging.Handler):
    """Log lines of the code under test, with the simulation's time."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def createLock(self) -> None:  # noqa: N802 -- its name
        self.lock = None  # one thread runs at a time

    def emit(self, record: logging.LogRecord) -> None:
        tell = self._run.history.tell
        if tell is not None:
            at = self._run.world.now - 1000
            tell(f"{at:9.4f}   log {record.threadName}: {record.getMessage()[:300]}")


def run(plan: Plan, tell: Callable[[str], None] | None = None) -> Result:
    """Run a plan."""
    return Run(plan, tell).go()
