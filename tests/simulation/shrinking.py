"""Shrinking: a plan that fails, cut down to what it needs to fail in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simulation.plan import Plan
from simulation.run import run


def kind_of(violation: str | None) -> str:
    """What kind of promise was broken."""
    return "" if violation is None else violation.split(":")[0]


def shrunk(plan: Plan, most: int = 300) -> Plan:
    """The smallest plan that was found to break the same kind of promise, in so many runs."""
    kind = kind_of(run(plan).violation)
    runs = 0
    changed = True
    while changed and runs < most:
        changed = False
        for smaller in _smaller(plan):
            runs += 1
            if kind_of(run(smaller).violation) == kind:
                plan, changed = smaller, True
                break
            if runs >= most:
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for part in (2, 4, 8):
        size = max(1, len(plan.records) // part)
        for start in range(0, len(plan.records), size):
            kept = plan.records[:start] + plan.records[start + size :]
            if kept and len(kept) < len(plan.records):
                yield replace(plan, records=kept)
    for number in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:number] + plan.faults[number + 1 :])
    usual = Plan(plan.seed)
    for name in (
        "workers",
        "lines",
        "stall",
        "lose_answers",
        "refuse_commits",
        "queue_size",
        "static",
        "timeout",
        "max_in_flight",
        "first",
        "form",
        "partitions",
        "late",
        "latency",
    ):
        if getattr(plan, name) != getattr(usual, name):
            changed = replace(plan, **{name: getattr(usual, name)})
            if name == "partitions":
                moved = tuple(replace(each, partition=0) for each in plan.records)
                changed = replace(changed, records=moved)
            yield changed
    for number, record in enumerate(plan.records):
        if record.behaviour != "done":
            plain = replace(record, behaviour="done")
            yield replace(
                plan, records=(*plan.records[:number], plain, *plan.records[number + 1 :])
            )
