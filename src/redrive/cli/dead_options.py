"""What all commands about dead letters share: whose letters, and which of them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, get_args

import typer

from redrive.config import Settings, SettingsArguments, load_settings
from redrive.dead.dialects import Wanted
from redrive.dead.filters import Filter
from redrive.durations import milliseconds
from redrive.errors import ConfigurationError
from redrive.loading import load_app

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letters import DeadLetters

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_WHOSE = "Whose letters"
_WHICH = "Which letters"
_LISTED = "repeatable"


class Whose(NamedTuple):
    """Where letters are."""

    app: App | None
    settings: Settings
    topic: str | None
    dialect: str

    def letters(self) -> DeadLetters:
        """The letters, as they are now."""
        from redrive.dead import open_letters

        return open_letters(self.app, self.settings, topic=self.topic, dialect=self.dialect)


def _whose(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="Such as shop:app; not needed with --topic."),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="A dead topic; that of the app by default.", rich_help_panel=_WHOSE),
    ] = None,
    dialect: Annotated[
        str,
        typer.Option(
            help=f"Who wrote them: {', '.join(get_args(Wanted))}.", rich_help_panel=_WHOSE
        ),
    ] = "auto",
    bootstrap: Annotated[
        str | None, typer.Option(help="Address of Kafka: host:port.", rich_help_panel=_WHOSE)
    ] = None,
) -> Whose:
    if target is None and topic is None:
        raise ConfigurationError(
            "name an app, such as shop:app, or the dead topic of another consumer with --topic"
        )
    app = None if target is None else load_app(target)
    given: SettingsArguments = {} if bootstrap is None else {"bootstrap": bootstrap}
    settings = load_settings(given, {} if app is None else app.settings)
    settings.servers()
    return Whose(app, settings, topic, dialect)


def _which(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE", help=f"Such as shop.dead[0]@17; {_LISTED}.", rich_help_panel=_WHICH
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help=f"A group's id, or how it begins; {_LISTED}.", rich_help_panel=_WHICH),
    ] = None,
    dead_reason: Annotated[
        list[str] | None,
        typer.Option(help=f"Why they are dead; {_LISTED}.", rich_help_panel=_WHICH),
    ] = None,
    error: Annotated[
        list[str] | None,
        typer.Option(help=f"The class of the error; {_LISTED}.", rich_help_panel=_WHICH),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Text in the error.", rich_help_panel=_WHICH)
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help=f"The key; {_LISTED}.", rich_help_panel=_WHICH)
    ] = None,
    id: Annotated[  # noqa: A002 -- the name of the option
        list[str] | None, typer.Option(help=f"The record's id; {_LISTED}.", rich_help_panel=_WHICH)
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help=f"A header of theirs; {_LISTED}.", rich_help_panel=_WHICH
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help=f"The topic they come from; {_LISTED}.", rich_help_panel=_WHICH),
    ] = None,
    newer: Annotated[
        str | None, typer.Option(help="Died within that time: 2h.", rich_help_panel=_WHICH)
    ] = None,
    older: Annotated[
        str | None, typer.Option(help="Died before that time: 7d.", rich_help_panel=_WHICH)
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(help="At least so many attempts.", rich_help_panel=_WHICH)
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help=f"open, failed-again, replayed or discarded; {_LISTED}.", rich_help_panel=_WHICH
        ),
    ] = None,
) -> Filter:
    now = int(time() * 1000)
    return Filter(
        places=tuple(at or ()),
        groups=tuple(group or ()),
        reasons=tuple(dead_reason or ()),
        errors=tuple(error or ()),
        text=text,
        keys=tuple(key or ()),
        ids=tuple(id or ()),
        headers=tuple(header or ()),
        origins=tuple(origin or ()),
        since=None if newer is None else now - milliseconds(newer),
        until=None if older is None else now - milliseconds(older),
        attempts=attempts,
        states=tuple(state or ()),  # type: ignore[arg-type]  # -- the filter checks the words
    )


def of_letters(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command `(whose, which, ...)` have the options that say whose letters, and which."""
    return _with(command, whose=_whose, which=_which)


def of_topic(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command `(whose, ...)` have the options that say whose letters."""
    return _with(command, whose=_whose)


def _with(command: Callable[..., None], **parts: Callable[..., Any]) -> Callable[..., None]:
    """A command whose parameters of these names are made of options of their own."""
    own = inspect.signature(command, eval_str=True)
    shared = {name: inspect.signature(part, eval_str=True) for name, part in parts.items()}

    def run(**given: Any) -> None:
        made = {
            name: parts[name](**{each: given.pop(each) for each in signature.parameters})
            for name, signature in shared.items()
        }
        command(**made, **given)

    kept = [each for each in own.parameters.values() if each.name not in parts]
    added = [each for one in shared.values() for each in one.parameters.values()]
    # The target is an argument: it comes first.
    ordered = [*added[:1], *kept, *added[1:]]
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in ordered]
    run.__signature__ = own.replace(parameters=keyword)  # type: ignore[attr-defined]  # -- typer reads it
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__annotations__ = {}
    return run


def output_file(path: Path | None) -> AbstractContextManager[TextIO]:
    """Where an export goes: a file, or standard output."""
    return nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8")
