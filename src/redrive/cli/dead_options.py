"""What all commands about dead letters share: whose letters, and which of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import typer

from redrive.cli.spark_process import ON_SPARK, SparkLogLevel
from redrive.config import Settings, SettingsArguments, load_settings
from redrive.dead.dialects import Wanted
from redrive.dead.filters import Filter
from redrive.durations import milliseconds
from redrive.errors import ConfigurationError
from redrive.kafka.errors import NotAllowedError
from redrive.loading import load_app

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letters import DeadLetters

Engine = Literal["local", "spark"]
_WHOSE = "Whose letters"
_WHICH = "Which letters"
_LISTED = "repeatable"
_ACLS = "`redrive topics module:app --acls` prints all that `redrive dead` needs"


class Whose(NamedTuple):
    """Where letters are."""

    app: App | None
    settings: Settings
    topic: str | None
    dialect: str
    target: str | None = None
    """The app, as module:name."""

    @property
    def named(self) -> str:
        """As it was given."""
        topic = [] if self.topic is None else [f"--topic {self.topic}"]
        return " ".join([*([] if self.target is None else [self.target]), *topic])

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
    return Whose(app, settings, topic, dialect, target)


def _which(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE", help=f"Such as shop.dead[0]@17; {_LISTED}.", rich_help_panel=_WHICH
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A group's id, or its first characters; {_LISTED}.", rich_help_panel=_WHICH
        ),
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
            metavar="NAME[=VALUE]",
            help=f"A header of the record; {_LISTED}.",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC|PLACE",
            help=f"Where they come from: orders, orders[0] or orders[0]@4; {_LISTED}.",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    newer: Annotated[
        str | None, typer.Option(help="Died less than this long ago: 2h.", rich_help_panel=_WHICH)
    ] = None,
    older: Annotated[
        str | None, typer.Option(help="Died more than this long ago: 7d.", rich_help_panel=_WHICH)
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(help="At least this many attempts.", rich_help_panel=_WHICH)
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help=f"open, failed-again, replayed or discarded; {_LISTED}.", rich_help_panel=_WHICH
        ),
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help=f"The id of a replay or discard that they were part of; {_LISTED}.",
            rich_help_panel=_WHICH,
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
        operations=tuple(operation or ()),
        states=tuple(state or ()),  # type: ignore[arg-type]  # -- the filter checks the words
    )


class On(NamedTuple):
    """Who works on letters: this process, or the tasks of Spark."""

    engine: Engine
    master: str | None
    log_level: SparkLogLevel


def _on(
    engine: Annotated[
        Engine,
        typer.Option(help="Use this process, or Spark tasks (for millions of letters)."),
    ] = "local",
    master: Annotated[
        str | None,
        typer.Option(help="Spark's master; this machine by default.", rich_help_panel=ON_SPARK),
    ] = None,
    spark_log_level: Annotated[
        SparkLogLevel | None,
        typer.Option(
            help="Minimum level of Spark's own log lines; fatal by default.",
            rich_help_panel=ON_SPARK,
        ),
    ] = None,
) -> On:
    given = {"--master": master, "--spark-log-level": spark_log_level}
    refuse_unless(engine == "spark", ON_SPARK, given)
    return On(engine, master, spark_log_level or "fatal")


def refuse_unless(fits: bool, panel: str, given: Mapping[str, object]) -> None:
    """Refuse options that would have no effect."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong and not fits:
        raise ConfigurationError([f"{name}: {panel.lower()}; drop it" for name in wrong])


def on_engine(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command `(whose, which, on, ...)` have these options, and those of its engine."""
    return composed(command, whose=_whose, which=_which, on=_on)


def of_letters(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command `(whose, which, ...)` have the options that say whose letters, and which."""
    return composed(command, whose=_whose, which=_which)


def on_engine_of_topic(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command `(whose, on, ...)` have the options of whose letters, and of its engine."""
    return composed(command, whose=_whose, on=_on)


def of_topic(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command `(whose, ...)` have the options that say whose letters."""
    return composed(command, whose=_whose)


def composed(command: Callable[..., None], **parts: Callable[..., Any]) -> Callable[..., None]:
    """A command whose parameters of these names are made of options of their own."""
    own = inspect.signature(command, eval_str=True)
    shared = {name: inspect.signature(part, eval_str=True) for name, part in parts.items()}

    def run(**given: Any) -> None:
        made = {
            name: parts[name](**{each: given.pop(each) for each in signature.parameters})
            for name, signature in shared.items()
        }
        try:
            command(**made, **given)
        except NotAllowedError as error:  # `redrive doctor` looks at what runs need
            raise NotAllowedError(f"{error.alone}; {_ACLS}") from error

    kept = [each for each in own.parameters.values() if each.name not in parts]
    added = [each for one in shared.values() for each in one.parameters.values()]
    # The target is an argument: it comes first.
    ordered = [*added[:1], *kept, *added[1:]]
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in ordered]
    run.__signature__ = own.replace(parameters=keyword)  # type: ignore[attr-defined]  # -- typer reads it
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__annotations__ = {}
    return run
