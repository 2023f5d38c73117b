"""Changes: what somebody does on the page. Everything is planned first, then confirmed."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any, cast, get_args
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from redrive.console.access import COOKIE
from redrive.console.asking import Asking
from redrive.console.board import Board
from redrive.console.forms import FILTERS, Fields, filter_of, options_of
from redrive.console.plans import Action, Asked
from redrive.dead import Filter, Operation, Operator, ReplayOptions, ReplayPlan, Trying
from redrive.dead.fixing import editable
from redrive.dead.operator import fix_named
from redrive.dead.steering import Steering
from redrive.dead.trying import Trials
from redrive.errors import ConfigurationError
from redrive.parked_rules import Kind, Match
from redrive.tuning import CONSOLE_PARKED


async def log_out(_asking: Asking) -> Response:
    """Forget the visitor."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def plan(asking: Asking) -> Response:
    """Find out what would be done; nothing is written."""
    fields, board = asking.fields, asking.board
    action = (fields.get("action") or [""])[0]
    if action not in get_args(Action):
        raise ConfigurationError("choose an action: replay, discard or try")
    edited = _edited(fields)
    meant = _meant(fields)
    as_seen = board.watched.letters.masks
    wanted = filter_of(meant, int(time() * 1000), as_seen=as_seen)
    options = options_of(fields, asking.console.fixes, edited)
    _check(board, cast("Action", action), wanted, options)
    if edited is not None:
        _check_edited(board, wanted, fields)
    operator = board.watched.operator(asking.visitor.name)
    asked = board.plans.begin(
        cast("Action", action),
        _run(asking, cast("Action", action), operator, wanted, options),
        wanted=wanted,
        options=options,
        by=asking.visitor.name,
        fields={name: meant[name] for name in FILTERS if name in meant},
    )
    return _to(asking, f"plans/{asked.id}")


def do_plan(asking: Asking) -> Response:
    """Do what was planned."""
    board = asking.board
    asked = board.plans.get(asking.request.path_params["plan"])
    if asked is None or not isinstance(asked.plan, ReplayPlan):
        raise ConfigurationError("this plan is not known any more, or not ready: ask for it again")
    why = (asking.fields.get("reason") or [""])[0]
    if not why:
        raise ConfigurationError("say why, in a few words: it is kept with every letter")
    run = _job(board, asked, asked.plan, asking.visitor.name, why)
    return _to(asking, f"jobs/{asked.taken(lambda: board.jobs.start(run).id)}")


def steer(asking: Asking) -> Response:
    """Pause, resume or cancel a job."""
    board, params = asking.board, asking.request.path_params
    name, verb = params["job"], params["verb"]
    operator = board.watched.operator(asking.visitor.name)
    if verb == "pause":
        if not board.jobs.pause(name, asking.visitor.name):
            operator.pause(name)
    elif verb == "cancel":
        board.jobs.pause(name, asking.visitor.name)
        operator.cancel(name)
    elif verb == "resume":
        _check_fix(asking, name)
        board.jobs.start(
            lambda show, stopping: operator.resume(name, progress=show, stopping=stopping)
        )
    else:
        raise ConfigurationError("a job can be paused, resumed or cancelled")
    return _to(asking, f"jobs/{name}")


def plan_parked(asking: Asking) -> Response:
    """Count what a rule about parked records would be about; nothing is written."""
    fields = _asked_by_button(asking.fields)
    kind, match = _rule(fields)
    plan = asking.board.watched.steering(asking.visitor.name).plan(kind, match, CONSOLE_PARKED)
    return asking.page("parked_plan.html", plan=plan, fields=fields)


def do_parked(asking: Asking) -> Response:
    """Say something about parked records, or end what was said."""
    board = asking.board
    why = (asking.fields.get("reason") or [""])[0]
    if not why:
        raise ConfigurationError("say why, in a few words: it is kept with the rule")
    say = _saying(asking.fields, board.watched.steering(asking.visitor.name), why)

    def run() -> None:
        try:
            say()
        finally:
            board.parked.outdated()

    board.ruling.say(run)
    return _to(asking, "parked")


def _saying(fields: Fields, steering: Steering, why: str) -> Callable[[], object]:
    """Says what the form does; mistakes in it are found at once."""
    if fields.get("rule"):
        return lambda: steering.release(
            steering.chosen(Match(), fields["rule"]), why, run_now="run_now" in fields
        )
    kind, match = _rule(fields)
    if kind == "hold":
        return lambda: steering.hold(match, why)
    return lambda: steering.run_now(match, why)


def _asked_by_button(fields: Fields) -> Fields:
    """The fields of a button, which has one value: an action, a topic, and perhaps a group."""
    if "ask" not in fields:
        return fields
    asked = dict(zip(("action", "topic", "group"), fields["ask"][0].split(), strict=False))
    return {name: [value] for name, value in asked.items()}


def _rule(fields: Fields) -> tuple[Kind, Match]:
    """What is to be said, about which parked records."""
    kind = (fields.get("action") or [""])[0]
    if kind not in get_args(Kind):
        raise ConfigurationError("choose an action: run-now or hold")
    meant = {name: tuple(fields.get(name, ())) for name in ("topic", "group", "id")}
    match = Match(topics=meant["topic"], groups=meant["group"], ids=meant["id"])
    return cast("Kind", kind), match


def _run(
    asking: Asking, action: Action, operator: Operator, wanted: Filter, options: ReplayOptions
) -> Callable[[], ReplayPlan | Trials]:
    if action == "replay":
        return lambda: operator.plan(wanted, options)
    if action == "discard":
        return lambda: operator.plan_discard(wanted)
    board = asking.board
    dsn = board.settings.database
    trying = Trying(
        board.watched.letters,
        fix=fix_named(options.fix),
        resources=asking.console.resources,
        database=None if dsn is None else dsn.reveal(),
    )
    return lambda: trying.run(wanted)


def _job(
    board: Board, asked: Asked, plan: ReplayPlan, by: str, why: str
) -> Callable[..., Operation]:
    operator = board.watched.operator(by)

    def run(show: Any, stopping: Callable[[], str]) -> Operation:
        # What has died since was not in the plan that somebody has seen.
        how: dict[str, Any] = {"progress": show, "stopping": stopping, "planned": plan.planned}
        if asked.action == "discard":
            return operator.discard(asked.wanted, why, **how)
        return operator.replay(asked.wanted, asked.options, why=why, **how)

    return run


def _check(board: Board, action: Action, wanted: Filter, options: ReplayOptions) -> None:
    if action != "discard" and not board.watched.has_code:
        raise ConfigurationError(
            f"the console knows {board.name} by its name only: start it with the app's code"
            " (`redrive console module:app`) to try and replay its letters"
        )
    if options.edited is not None and len(wanted.places) != 1:
        raise ConfigurationError("an edited value is for one letter")


def _check_fix(asking: Asking, name: str) -> None:
    """A job that was begun elsewhere may have a fix that this console was not started with."""
    letters, index = asking.board.watched.letters, asking.board.index
    index.catch_up()
    operation = index.operation(name)
    if operation is None:  # its fix is not known, either
        raise ConfigurationError(f"there is no operation {name}")
    fix = operation.options.get("fix")
    if fix is not None and fix not in asking.console.fixes:
        raise ConfigurationError(
            f"{name} uses the fix {fix}, which the console was not started with: resume it with"
            f" `{operation.resumed_by(letters.named)}`"
        )


def _meant(fields: Fields) -> dict[str, list[str]]:
    """The selected letters, if any are; else the filter of the page."""
    if fields.get("selected"):
        return {"at": fields["selected"]}
    return dict(fields)


def _edited(fields: Fields) -> bytes | None:
    if "edited" not in fields:
        return None
    text = _as_written(fields["edited"][0])
    if text == _as_written(fields.get("before_edit", [""])[0]):
        raise ConfigurationError("the value was not changed: nothing is replayed")
    return text.encode()


def _check_edited(board: Board, wanted: Filter, fields: Fields) -> None:
    """See that the letter is the one whose value somebody had before them, if the page told it."""
    board.index.catch_up()
    [place] = wanted.places
    text, _ = editable(board.watched.letters.show(place, known=board.index.known).found.letter)
    if [_as_written(text)] != [*map(_as_written, fields.get("before_edit", [text]))]:
        raise ConfigurationError(
            f"{place} is another letter than the one that was edited: its topic has been recreated"
            " since; edit it again"
        )


def _as_written(text: str) -> str:
    """A text without the ends of lines that forms send."""
    return text.replace("\r\n", "\n")


def _to(asking: Asking, path: str) -> Response:
    return RedirectResponse(f"/apps/{quote(asking.board.name)}/{path}", 303)
