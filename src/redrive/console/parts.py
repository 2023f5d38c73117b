"""Parts: pieces of pages that change by themselves, rendered once for all who look at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import Final

from redrive.console.asking import Console
from redrive.console.board import Board
from redrive.console.jobs import Standing
from redrive.console.picture import WIDTH, picture
from redrive.errors import ConfigurationError


def flow(console: Console, board: Board, _name: str = "") -> str:
    """The picture, the topics, the charts and the warnings."""
    sampler = board.sampler
    now = int(time() * 1000)
    return console.pages.part(
        "part_flow.html",
        app=board.name,
        flow=sampler.flow,
        seen=sampler.seen,
        trends=sampler.trends,
        picture=picture(sampler.flow),
        watches=board.watches,
        width=WIDTH,
        concerns=board.concerns(),
        now=now,
    )


def groups(console: Console, board: Board, _name: str = "") -> str:
    """Dead letters by cause, as far as they are counted."""
    counted = board.index.counted(int(time() * 1000))
    return console.pages.part(
        "part_groups.html", app=board.name, counted=counted, trouble=board.index_trouble
    )


def parked(console: Console, board: Board, _name: str = "") -> str:
    """What waits for another attempt, as far as it is counted."""
    waiting, now = board.parked.look(), int(time() * 1000)
    return console.pages.part("part_parked.html", waiting=waiting, now=now)


def job(console: Console, board: Board, name: str = "") -> str:
    """How a job stands."""
    operation, fate = standing_of(board, name)
    return console.pages.part(
        "part_job.html",
        app=board.name,
        operation=board.watched.letters.told(operation),
        fate=board.fates.of(operation) or fate,
        said=board.jobs.said_of(name),
    )


PARTS: Final[Mapping[str, Callable[..., str]]] = {
    "flow": flow,
    "groups": groups,
    "job": job,
    "parked": parked,
}


def standing_of(board: Board, name: str) -> Standing:
    """How a job stands: by this process, if it runs it, else by what the board has read."""
    mine = board.jobs.standing
    if mine is not None and mine.operation.id == name:
        known = board.index.operation(name)
        if known is None or known.updated <= mine.operation.updated:
            return mine
        return Standing(known, mine.fate)
    operation = board.index.operation(name)
    if operation is None:
        raise ConfigurationError(f"there is no operation {name}")
    return Standing(operation, None)
