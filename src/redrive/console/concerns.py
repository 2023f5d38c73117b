"""Concerns: what a person would want to be warned of. Pure: what was seen in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from redrive import numbers
from redrive.console.endpoints import OPEN, Seen
from redrive.console.flow import Flow, Node
from redrive.console.letters_index import Counted
from redrive.console.retention import Kept
from redrive.dead.filters import age
from redrive.dead.states import UNSETTLED
from redrive.tuning import CONSOLE_OLD_SECONDS, CONSOLE_UNREAD_SECONDS, CONSOLE_WARN_AFTER

_BEHIND: Final = 60_000
_GROWS: Final = 20
_NEARLY: Final = 0.8
"""The share of a time after which it is nearly over."""


class Concern(NamedTuple):
    """Something to look at."""

    grave: bool
    said: str


def concerns(
    app: str,
    flow: Flow,
    *,
    counted: Counted,
    seen: Sequence[Seen],
    kept: Kept,
    now: int,
    warn_after: int = CONSOLE_WARN_AFTER,
) -> list[Concern]:
    """All of them, the grave ones first.

    `warn_after`: milliseconds after which a letter without a decision is worth a word.
    """
    found = [
        *_of_age(flow, now),
        *_of_runs(flow, seen),
        *_of_topics(flow, now),
        *_of_unread(app, flow, seen, now),
        *_of_offsets(app, flow, seen, kept.offsets, now),
        *_of_retention(flow, kept.topics, now),
        *_of_letters(counted, now, warn_after),
    ]
    return sorted(found, key=lambda each: not each.grave)


def _of_age(flow: Flow, now: int) -> Iterator[Concern]:
    if flow.at and not flow.trouble and now - flow.at > CONSOLE_OLD_SECONDS * 1000:
        said = f"the page is not up to date: nothing was seen for {age(now - flow.at)}"
        yield Concern(grave=True, said=said)


def _of_runs(flow: Flow, seen: Sequence[Seen]) -> Iterator[Concern]:
    if flow.trouble:
        yield Concern(grave=True, said=f"the page is not up to date: {flow.trouble}")
    for each in seen:
        for name, health in (("/live", each.live), ("/ready", each.ready)):
            if not health.good:
                yield Concern(grave=True, said=f"{each.address}{name}: {health.said}")
                break
        if each.figures.get("redrive_refused_writes"):
            waiting = each.figures["redrive_refused_writes"]
            yield Concern(
                grave=True,
                said=f"{each.address}: {waiting:,.0f} records wait, as their writes are refused",
            )
        if each.figures.get("redrive_data_losses_total"):
            yield Concern(
                grave=True,
                said=f"{each.address}: records were lost before they were read: its log says which",
            )
        for said, state in each.outages():
            why = ": what its handler depends on is away" if state == OPEN else ""
            yield Concern(grave=state == OPEN, said=f"{each.address}: {said}{why}")


def _of_topics(flow: Flow, now: int) -> Iterator[Concern]:
    for node in flow.nodes:
        if node.missing and node.kind != "outbound":
            yield Concern(
                grave=True, said=f"{node.topic} does not exist: run `redrive topics --apply`"
            )
        # Without a delay, records wait for others of their key: they are late only if those are.
        late_by = now - (node.due_since or now) if node.delay else 0
        if node.kind == "delay" and node.due and late_by > _BEHIND:
            late = age(late_by)
            due = numbers.counted(node.due, "record is", "records are")
            said = f"{node.topic} falls behind: {due} due, the first for {late}"
            yield Concern(grave=True, said=said)


def _of_unread(app: str, flow: Flow, seen: Sequence[Seen], now: int) -> Iterator[Concern]:
    """Topics that nobody reads; a run that says it is ready may take long over its records."""
    if any(each.runs(app) for each in seen):
        return
    for node in flow.nodes:
        if node.unread_since is None or now - node.unread_since < CONSOLE_UNREAD_SECONDS * 1000:
            continue
        waiting = numbers.counted(node.waiting, "record waits", "records wait")
        yield Concern(
            grave=True,
            said=f"nobody seems to read {node.topic}: {waiting}, and none was handled for"
            f" {age(now - node.unread_since)}",
        )


def _of_offsets(
    app: str, flow: Flow, seen: Sequence[Seen], kept: int | None, now: int
) -> Iterator[Concern]:
    """Progress of an app that nobody runs, which brokers forget after a while."""
    if kept is None or flow.quiet_since is None or any(each.runs(app) for each in seen):
        return
    quiet = now - flow.quiet_since
    if quiet > kept * _NEARLY:
        yield Concern(
            grave=True,
            said=f"no run of {app} was seen for {age(quiet)}, and brokers forget its progress"
            f" {age(kept)} after the last one (offsets.retention.minutes): run it before that",
        )


def _of_retention(flow: Flow, retention: Mapping[str, int | None], now: int) -> Iterator[Concern]:
    for node in flow.nodes:
        kept = retention.get(node.topic)
        if kept is None:
            continue
        if node.kind == "delay" and kept < node.delay * 2:
            yield Concern(
                grave=True,
                said=(
                    f"{node.topic} keeps records for {age(kept)}, which is hardly longer than they"
                    f" wait: raise retention.ms"
                ),
            )
        waited = _waited(node, now)
        if waited is not None and waited > kept * _NEARLY:
            what = "letter that waits for a decision" if node.kind == "dead" else "unhandled record"
            yield Concern(
                grave=True,
                said=(
                    f"{node.topic}: the oldest {what} is {age(waited)} old, and retention deletes"
                    f" it after {age(kept)}"
                ),
            )


def _waited(node: Node, now: int) -> int | None:
    if node.oldest is None or (node.kind != "dead" and not node.lag):
        return None
    return now - node.oldest


def _of_letters(counted: Counted, now: int, warn_after: int) -> Iterator[Concern]:
    for group in counted.groups:
        unsettled = sum(group.states[state] for state in UNSETTLED)
        hours = counted.hours.get(group.id, [])
        if hours and hours[-1] >= _GROWS and hours[-1] > 3 * (sum(hours[:-1]) / (len(hours) - 1)):
            yield Concern(
                grave=True,
                said=f"{group.error_type or group.reason} grows: {hours[-1]:,} died in this hour",
            )
        since = counted.waiting.get(group.id)
        if unsettled and since is not None and now - since > warn_after:
            yield Concern(
                grave=False,
                said=(
                    f"{group.error_type or group.reason}:"
                    f" {numbers.counted(unsettled, 'letter waits', 'letters wait')} for a"
                    f" decision, the first for {age(now - since)}"
                ),
            )
