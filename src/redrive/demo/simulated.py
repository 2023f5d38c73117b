"""The story on the broker in memory, in virtual time."""

from __future__ import annotations

from time import perf_counter

from redrive.demo.shop import app
from redrive.demo.story import EVENTS, Step, Telling, name_of
from redrive.durations import milliseconds
from redrive.processing.outcomes.report import Outcome
from redrive.record import Record
from redrive.testing import Attempt, Simulation
from redrive.topics import topic_names

_Call = tuple[str, int, int, int]
"""Where the record came from, and which attempt it was."""


def simulate() -> Telling:
    """Play the events, and let time pass until nothing is waiting."""
    began = perf_counter()
    with Simulation(app, partitions=3) as sim:
        start = sim.clock.now()
        for event in EVENTS:
            sim.advance((start + milliseconds(event.at) - sim.clock.now()) / 1000)
            sim.send(event.topic, event.value, key=event.item)
        sim.run_until_empty()
        return Telling(
            steps=_steps(sim, start),
            counts={topic: len(sim.sent(topic)) for topic in topic_names(app)},
            dead=[(kept.record, kept.envelope) for kept in sim.dead],
            parked=len(sim.parked),
            lasted=sim.clock.now() - start,
            took=perf_counter() - began,
        )


def _steps(sim: Simulation, start: int) -> list[Step]:
    ends = {_call(each): each for each in sim.outcomes if each.envelope is not None}
    steps = [
        _handled(attempt)
        if attempt.error is None
        else _ended(ends.pop(_call(attempt)), milliseconds(attempt.after), start)
        for attempt in sim.attempts
    ]
    # What is left never reached its handler: it ended when it was received.
    steps += [
        _ended(end, end.envelope.first_received - start, start)
        for end in ends.values()
        if end.envelope is not None
    ]
    return sorted(steps, key=lambda step: step.at)


def _handled(attempt: Attempt) -> Step:
    at = milliseconds(attempt.after)
    return Step(at, name_of(attempt.record), attempt.attempt, "handled")


def _ended(end: Outcome, at: int, start: int) -> Step:
    name, error = name_of(end.record), str(end.error)
    topic = end.writes[-1].topic
    attempt = _call(end)[-1]
    if end.kind == "bury":
        return Step(at, name, attempt, "buried", topic, reason=end.reason, error=error)
    due = end.envelope.due if end.envelope and end.envelope.due else start
    return Step(at, name, attempt, "parked", topic, due - start, error=error)


def _call(of: Attempt | Outcome) -> _Call:
    if isinstance(of, Attempt):
        attempt = of.attempt
    else:
        # A parked record's envelope already has the number of the next attempt.
        attempt = (of.envelope.attempt if of.envelope else 1) - (of.kind == "park")
    return (*_place(of.record), attempt)


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
