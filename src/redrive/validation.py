"""Mistakes in an app, each as a sentence that says what to write instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, get_args

from redrive.backoff import GiveBack
from redrive.choices import Ack, AfterBury, Commit, Engine, OnDataLoss, Ordering
from redrive.guarantees import GUARANTEES, Delivery
from redrive.handler import Handler, accepts, is_async_itself, name_of, yields
from redrive.record import is_topic_name

if TYPE_CHECKING:
    from redrive.app import App

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_MAX_CONCURRENCY: Final = 10_000


def of_app(
    app: App, handlers: Mapping[str, Handler], recoveries: Iterable[str | None]
) -> Iterator[str]:
    """What is wrong on any engine."""
    yield from _own(app, handlers, recoveries)
    for handler in handlers.values():
        for problem in _of_handler(app, handler):
            yield f'handler of "{handler.topic}": {problem}'
    yield from _of_frames(app, handlers, recoveries)


def of_words(
    function: Callable[..., Any], called: str, given: Iterable[str], others: Iterable[str] = ()
) -> Iterator[str]:
    """Options that a function does not have, each with the one that was probably meant."""
    parameters = inspect.signature(function).parameters.values()
    known = [*(each.name for each in parameters if each.kind is each.KEYWORD_ONLY), *others]
    for word in given:
        if word not in known:
            close = get_close_matches(word, known, n=1)
            hint = f"did you mean {close[0]}=?" if close else f"known options: {', '.join(known)}"
            yield f"{word}= is not an option of {called}: {hint}"


def of_engine(app: App, handlers: Mapping[str, Handler], engine: Engine | None) -> Iterator[str]:
    """What one engine cannot do."""
    for handler in handlers.values():
        where = f'handler of "{handler.topic}"'
        if engine == "worker" and handler.is_frame:
            yield f"frame {where}: DataFrames exist only on Spark; use --engine spark"
        if engine == "spark" and isinstance(handler.retry.first, GiveBack):
            yield f"{where}: GiveBack works only on the worker; use InPlace, or --engine worker"
        if engine == "spark" and handler.is_uninterruptible:
            yield (
                f"{where}: timeout= on a function that is not async works only on the worker: a"
                " Spark task cannot go on without it; make it async, or use --engine worker"
            )
    if engine == "spark" and app.commit is not None:
        yield "commit= works only on the worker: on Spark each task commits"


def _of_names(app: App) -> Iterator[str]:
    if not _is_name(app.name):
        yield (
            "the name must be 1 to 200 letters, digits, '.', '_' or '-': it is part of topic names"
        )
    if app.was is not None and not _is_name(app.was):
        yield f"was is {app.was!r}; it must be the app's previous name"
    elif app.was == app.name:
        yield "was= is the app's current name; remove it"


def _is_name(given: object) -> bool:
    return isinstance(given, str) and _NAME.fullmatch(given) is not None


def _own(
    app: App, handlers: Mapping[str, Handler], recoveries: Iterable[str | None]
) -> Iterator[str]:
    yield from _of_names(app)
    words = {
        "delivery": Delivery,
        "ordering": Ordering,
        "on_data_loss": OnDataLoss,
        "commit": Commit | None,
    }
    for option, allowed in words.items():
        given = getattr(app, option)
        known = get_args(Commit) if option == "commit" else get_args(allowed)
        if given not in known and not (option == "commit" and given is None):
            yield f"{option} is {given!r}; it can be {' or '.join(map(repr, known))}"
    if not (_is_whole(app.concurrency) and 1 <= app.concurrency <= _MAX_CONCURRENCY):
        yield f"concurrency is {app.concurrency!r}; it can be 1 to {_MAX_CONCURRENCY}"
    if not (_is_whole(app.database_connections) and app.database_connections >= 1):
        yield f"database_connections is {app.database_connections!r}; it must be at least 1"
    share = app.stop_on_dead
    if share is not None and (
        isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1
    ):
        yield f"stop_on_dead is {share!r}; it can be more than 0, up to 1: a share of the records"
    yield from _of_sends(app, app.sends)
    yield from _of_strict(app, handlers)
    if not handlers:
        yield "it has no handlers: decorate a function with @app.handler(topic)"
    for topic in recoveries:
        if topic is not None and topic not in handlers:
            yield f'there is a recovery for "{topic}", but no handler'


def _of_strict(app: App, handlers: Mapping[str, Handler]) -> Iterator[str]:
    """What is wrong with strict order, and what cannot be combined with it."""
    if not (_is_whole(app.max_behind) and app.max_behind >= 1):
        yield f"max_behind is {app.max_behind!r}; it must be at least 1"
    if app.after_bury not in get_args(AfterBury):
        known = " or ".join(map(repr, get_args(AfterBury)))
        yield f"after_bury is {app.after_bury!r}; it can be {known}"
    if app.after_bury == "hold":
        yield (
            'after_bury="hold" is not possible yet: nobody would tell a key that its dead letter'
            ' was discarded; use after_bury="continue"'
        )
    if app.ordering == "strict":
        yield from _against_strict(app, handlers)


def _against_strict(app: App, handlers: Mapping[str, Handler]) -> Iterator[str]:
    strict = 'ordering="strict"'
    if len(handlers) > 1:
        yield (
            f"{strict} is for an app with one source topic, because records of all source topics"
            " would wait in the same partitions, and one worker need not own all of those; write"
            " an app for each"
        )
    if app.delivery == "transaction":
        yield (
            f"{strict} cannot be combined with transaction: it commits a contiguous prefix of"
            " records, and one key that waits would hold up all others"
        )
    if app.was is not None:
        yield (
            f"{strict} cannot be combined with was=: nobody knows which partition the records that"
            " wait under the old name belong to; let the old app finish first"
        )
    if any(handler.guard is not None for handler in handlers.values()):
        yield (
            f"{strict} cannot be combined with guard= yet: what waits behind a parked record during"
            " an outage has not been tried; remove one of them"
        )
    for handler in handlers.values():
        for why in _not_in_order(handler):
            yield f'handler of "{handler.topic}": {why}'


def _not_in_order(handler: Handler) -> Iterator[str]:
    if handler.is_frame:
        yield 'ordering="strict" is for single records, and Spark orders no rows of a frame'
    if handler.batch is not None:
        yield (
            'batch= cannot be combined with ordering="strict": one call may have several records of'
            " a key, and a later one would be done although an earlier one fails"
        )
    if handler.retry.redeliver == "origin":
        yield (
            'redeliver="origin" cannot be combined with ordering="strict": a record that is written'
            " back stands behind later ones of its key"
        )
    if isinstance(handler.retry.first, GiveBack):
        yield (
            'GiveBack cannot be combined with ordering="strict": a record that waits behind another'
            " cannot be given back; use InPlace"
        )


def _of_handler(app: App, handler: Handler) -> Iterator[str]:
    if not (isinstance(handler.topic, str) and is_topic_name(handler.topic)):
        yield "that is not a valid Kafka topic name"
    own = (app.dead_topic, app.state_topic, *_behind(app))
    if handler.topic in own or handler.topic in app.delay_topics:
        yield "that is one of the app's own topics; rename the app"
    first = "record" if handler.batch is None else "records"
    taken = ["frame"] if handler.is_frame else [first, "ctx"]
    if not accepts(handler.call, len(taken)):
        yield f"{name_of(handler.call)} must take ({', '.join(taken)})"
    if not (handler.batch is None or (_is_whole(handler.batch) and handler.batch >= 1)):
        yield f"batch is {handler.batch!r}; it must be at least 1: the most records per call"
    if yields(handler.call):
        yield f"{name_of(handler.call)} yields, so its body would never run: use ctx.send instead"
    if handler.is_frame and handler.is_async:
        yield (
            f"{name_of(handler.call)} is async: a frame handler only describes what Spark does;"
            " make it a plain function"
        )
    if handler.ack not in get_args(Ack):
        yield f"ack is {handler.ack!r}; it can be 'auto' or 'manual'"
    if handler.ack == "manual" and handler.batch is not None:
        yield "manual acks work only for single records: remove batch= or ack="
    if handler.timeout == 0:
        yield "timeout is 0: every call would time out at once; remove it, or give at least 1ms"
    yield from _of_decode(handler)
    yield from _of_id(handler)
    yield from _of_sends(app, handler.sends)
    yield from _of_delivery(app, handler)


def _behind(app: App) -> list[str]:
    return [app.behind_topic] if app.ordering == "strict" else []


def _of_decode(handler: Handler) -> Iterator[str]:
    decode = handler.decode
    if decode is None:
        return
    if inspect.ismodule(decode):
        name = decode.__name__
        yield f"decode is the module {name}; give one of its functions, such as decode={name}.loads"
    elif not callable(decode):
        yield (
            f"decode is {decode!r}; it must be a function that takes the value's bytes, such as"
            " decode=json.loads"
        )
    elif is_async_itself(decode) or yields(decode):
        yield (
            f"decode={name_of(decode)} is async or yields: it must return the decoded value; await"
            " in the handler"
        )
    elif not accepts(decode, 1):
        yield f"decode={name_of(decode)} must take (value)"


def _of_id(handler: Handler) -> Iterator[str]:
    if isinstance(handler.id, str):
        yield (
            f"id is {handler.id!r}, a string; write id=field({handler.id!r}) for a field of the"
            f" decoded value, or id=header({handler.id!r}) for a header"
        )
    elif not (handler.id is None or callable(handler.id)):
        yield f"id is {handler.id!r}; it can be field(...), header(...), key or a function"
    is_chosen = handler.id_scope != handler.topic
    if is_chosen and not (isinstance(handler.id_scope, str) and is_topic_name(handler.id_scope)):
        yield f"id_scope is {handler.id_scope!r}; it must be a valid Kafka topic name"
    elif is_chosen and handler.id is None:
        yield "id_scope= has no effect without id=: add id=, or remove id_scope="
    for option, function in (("id", handler.id), ("payload", handler.payload)):
        if callable(function) and is_async_itself(function):
            yield f"{option}={name_of(function)} is async: it must return its result directly"
    if not (handler.payload is None or callable(handler.payload)):
        yield f"payload is {handler.payload!r}; it must be a function that takes the record"


def _of_sends(app: App, sends: Iterable[str] | None) -> Iterator[str]:
    for topic in sends or ():
        if not (isinstance(topic, str) and is_topic_name(topic)):
            yield f"sends= names {topic!r}, which is not a valid Kafka topic name"
        elif topic == app.dead_topic or app.delay_of(topic) is not None:
            own = "one of the app's own topics: raise Retry or Bury instead"
            yield f"sends= names {topic!r}, {own}"


def _of_frames(
    app: App, handlers: Mapping[str, Handler], recoveries: Iterable[str | None]
) -> Iterator[str]:
    frames = [handler for handler in handlers.values() if handler.is_frame]
    if not frames:
        return
    where = f'frame handler of "{frames[0].topic}"'
    if len(handlers) > 1:
        yield (
            f"{where}: an app with a frame handler can have no other handlers; put them in a"
            " second app"
        )
    guarantee = GUARANTEES.get(app.delivery)
    if guarantee is not None and guarantee.database:
        yield (
            f"{where}: {app.delivery} needs a database transaction around each record; frame"
            " handlers support at-least-once and transaction"
        )
    if frames[0].retry.first is not None:
        yield f"{where}: first= retries single records; a frame handler has only delays="
    if list(recoveries):
        yield (
            f"{where}: recoveries are called with a single record; a frame handler decides with"
            " its outcome column"
        )
    if app.guard is not None:
        yield (
            f"{where}: guard= cannot see an outage there, as Spark ends a job with the first row"
            " that fails and nobody knows about the others; while a table that it reads is away,"
            " its records wait without one: remove guard="
        )
    if app.stop_on_dead is not None:
        yield (
            f"{where}: stop_on_dead= goes by records that are buried one by one; a frame handler"
            " buries with its outcome column: have it raise instead"
        )
    if app.resources:
        yield (
            f"{where}: resources are for handlers of single records; a frame handler reads"
            " DataFrames"
        )


def _of_delivery(app: App, handler: Handler) -> Iterator[str]:
    guarantee = GUARANTEES.get(app.delivery)
    if guarantee is None or handler.ack != "manual":
        return
    if guarantee.transactional:
        yield (
            "manual acks cannot be combined with transaction: it commits a contiguous prefix"
            " of records, and cannot wait for one of them"
        )
    if guarantee.database:
        yield (
            f"manual acks cannot be combined with {app.delivery}: its transaction is committed"
            " when the handler returns, and cannot wait for an acknowledgement"
        )


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
