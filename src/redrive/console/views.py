"""Views: the pages that only show something."""

from __future__ import annotations

import re
from time import time
from typing import Final

from starlette.responses import RedirectResponse, Response

from redrive.console.asking import Asking
from redrive.console.board import Board
from redrive.console.bounded_code import page_time
from redrive.console.forms import DIGITS, FILTERS, filter_of, query_of
from redrive.console.parts import PARTS
from redrive.console.rendering import selected
from redrive.dead.fixing import editable
from redrive.dead.latest import latest
from redrive.dead.letters import Detail
from redrive.errors import ConfigurationError, RedriveError
from redrive.parked_rules import ParkedRule
from redrive.tuning import (
    CONSOLE_CODE_SECONDS,
    CONSOLE_LETTERS,
    CONSOLE_RULES,
    CONSOLE_SCAN_SECONDS,
)

_CHANGED_BY_BROWSERS: Final = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]")
"""Control characters of seven and of eight bits, but for tab and line feed."""


def start(asking: Asking) -> Response:
    """All apps; with one alone, that one."""
    boards = asking.console.boards
    if len(boards) == 1:
        return RedirectResponse(f"/apps/{next(iter(boards))}", 303)
    return asking.page("apps.html", boards=boards)


def flow(asking: Asking) -> Response:
    """How records move."""
    return asking.page("flow.html", part=PARTS["flow"](asking.console, asking.board))


def groups(asking: Asking) -> Response:
    """Dead letters by cause."""
    return asking.page("groups.html", part=PARTS["groups"](asking.console, asking.board))


def letters(asking: Asking) -> Response:
    """Dead letters, the last ones first."""
    board, fields = asking.board, asking.fields
    wanted = filter_of(fields, _now(), as_seen=board.watched.letters.masks)
    board.index.catch_up()  # whoever has just done something wants to see it
    with page_time() as time_of_code:
        page = latest(
            board.watched.letters,
            wanted,
            before=_before(fields.get("before", [])),
            limit=CONSOLE_LETTERS,
            seconds=CONSOLE_SCAN_SECONDS,
            known=board.index.known,
        )
        seen = [board.watched.letters.seen(each.letter) for each in page.found]
        for each in seen:
            _ = each.message  # where fields are masked, what may be seen of it is found out now
    before = ",".join(f"{place}:{end}" for place, end in page.before.items())
    return asking.page(
        "letters.html",
        page=page,
        seen=seen,
        late=time_of_code.is_over,
        code_seconds=CONSOLE_CODE_SECONDS,
        query=query_of(fields),
        following=query_of(fields, before=before) if page.left else "",
        given=selected(fields),
        fields={name: fields[name] for name in FILTERS if name in fields},
    )


def letter(asking: Asking) -> Response:
    """One letter, with its way."""
    place = _place(asking)
    detail = _detail(asking.board, place)
    letter = detail.found.letter
    with page_time():
        return asking.page(
            "letter.html", detail=detail, letter=letter, seen=detail.seen, place=place
        )


def edit(asking: Asking) -> Response:
    """The value of one letter, to be changed."""
    place = _place(asking)
    board = asking.board
    if board.watched.app.masked:
        raise ConfigurationError(
            f"{place}: the app masks fields of its values, so they are not shown to be edited; use"
            " a fix"
        )
    found = _detail(board, place).found
    text, _ = editable(found.letter)
    if _CHANGED_BY_BROWSERS.search(text):
        raise ConfigurationError(
            f"{place} has control characters, which a browser would change or not show: use a fix,"
            " or `redrive dead replay --edit`"
        )
    return asking.page("edit.html", letter=found.letter, place=place, text=text)


def plan(asking: Asking) -> Response:
    """What would be done, before it is."""
    asked = asking.board.plans.get(asking.request.path_params["plan"])
    if asked is None:
        raise ConfigurationError("this plan is not known any more: ask for it again")
    return asking.page("plan.html", asked=asked, fixes=asking.console.fixes)


def job(asking: Asking) -> Response:
    """One job, as it goes on."""
    name = asking.request.path_params["job"]
    asking.board.index.catch_up()  # it may have been begun a moment ago, elsewhere
    part = PARTS["job"](asking.console, asking.board, name)
    return asking.page("job.html", name=name, part=part)


def parked(asking: Asking) -> Response:
    """What waits for another attempt."""
    steering = asking.board.watched.steering(asking.visitor.name)
    rules = [steering.told(each) for each in steering.rules() if steering.under_way(each)]
    part = PARTS["parked"](asking.console, asking.board)
    return asking.page("parked.html", part=part, rules=rules, ruling=asking.board.ruling)


def audit(asking: Asking) -> Response:
    """Who did what, when and why; and who was refused."""
    index = asking.board.index
    index.catch_up()  # whoever has just done something wants to see it
    counted = index.counted(_now())
    rules: list[ParkedRule] = []
    over: set[str] = set()
    trouble = ""
    try:
        steering = asking.board.watched.steering(asking.visitor.name)
        rules = [steering.told(each) for each in steering.rules()[:CONSOLE_RULES]]
        # The next run-now ends those that are over, and nobody before it.
        over = {each.id for each in rules if each.status == "open" and not steering.under_way(each)}
    except RedriveError as error:  # the rest of the page can be shown all the same
        trouble = str(error)
    refused = asking.console.refusals.newest_first()
    return asking.page(
        "audit.html",
        operations=[*map(asking.board.watched.letters.told, counted.operations)],
        rules=rules,
        over=over,
        trouble=trouble,
        refused=refused,
    )


def _detail(board: Board, place: str) -> Detail:
    """One letter; by what the board knows, as each page would else read the whole state topic."""
    board.index.catch_up()
    return board.watched.letters.show(place, known=board.index.known)


def _place(asking: Asking) -> str:
    given = asking.fields.get("at")
    if not given:
        raise ConfigurationError("which letter? the address lacks ?at=topic[partition]@offset")
    return given[0]


def _before(given: list[str]) -> dict[int, int]:
    """Where a page goes on: `0:17,1:4`; anything else is left out."""
    found: dict[int, int] = {}
    for each in ",".join(given).split(","):
        place, _, end = each.partition(":")
        if all(number.isdecimal() and len(number) <= DIGITS for number in (place, end)):
            found[int(place)] = int(end)
    return found


def _now() -> int:
    return int(time() * 1000)
