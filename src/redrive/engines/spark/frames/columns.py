"""What a frame handler says of each row: `done()`, `send()`, `park()`, `bury()` make its `outcome`.

All of them are of one type, so that `when(...).otherwise(...)` may choose among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 -- as all of Spark's documentation calls it

from redrive.durations import Duration, milliseconds

if TYPE_CHECKING:
    from pyspark.sql import Column

HEADERS: Final = "array<struct<key:string,value:binary>>"
_SENDS: Final = f"array<struct<topic:string,key:binary,value:binary,headers:{HEADERS}>>"
OUTCOME: Final = f"struct<kind:string,reason:string,after:bigint,sends:{_SENDS}>"
OUTCOMES: Final = f"array<{OUTCOME}>"
KINDS: Final = ("done", "send", "park", "bury")
MIXED: Final = "mixed"
"""Of an array in which not everything is sent: it says nothing that could be done."""


def done() -> Column:
    """The row is done, and nothing is to be written for it."""
    return _outcome("done")


def send(
    topic: str | Column,
    key: str | Column | None,
    value: str | Column | None,
    headers: str | Column | Mapping[str, str | bytes | Column] | None = None,
) -> Column:
    """The row is done, and a message is written.

    A text for `topic` is the topic's name; for `key`, `value` and `headers` it is the name of a
    column, as everywhere in Spark. The column of headers is like that of Spark's Kafka source; a
    dictionary makes one, in which a text is the value itself.
    """
    message = F.struct(
        _literal(topic).alias("topic"),
        _bytes(key).alias("key"),
        _bytes(value).alias("value"),
        _headers(headers).alias("headers"),
    )
    return _outcome("send", sends=F.array(message))


def send_all(*outcomes: Column) -> Column:
    """The row is done, and several messages are written: `send_all(send(...), send(...))`.

    `done()` among them adds nothing; `park` or `bury` would contradict the others, and stop the
    run. An array of `send(...)`, such as `transform(lines, ...)`, may be the outcome by itself.
    """
    return of_array(F.array(*outcomes))


def of_array(found: Column) -> Column:
    """The outcome that an array of outcomes comes to."""
    sends = F.flatten(F.transform(found, lambda one: F.coalesce(one["sends"], _no_sends())))
    agree = F.forall(found, lambda one: F.coalesce(one["kind"], F.lit(MIXED)).isin("send", "done"))
    kind = F.when(found.isNull(), None).when(agree, "send").otherwise(MIXED)
    return _outcome(kind, sends=sends)


def park(reason: str | Column, after: Duration | None = None) -> Column:
    """The row cannot be handled now: again later, as the policy says, or `after` that time."""
    wait = F.lit(None) if after is None else F.lit(milliseconds(after))
    return _outcome("park", reason=_literal(reason), after=wait)


def bury(reason: str | Column) -> Column:
    """The row can never be handled: to the dead topic, with the reason."""
    return _outcome("bury", reason=_literal(reason))


def _outcome(
    kind: str | Column,
    *,
    reason: Column | None = None,
    after: Column | None = None,
    sends: Column | None = None,
) -> Column:
    nothing = F.lit(None)
    parts = (
        _literal(kind).alias("kind"),
        (nothing if reason is None else reason).cast("string").alias("reason"),
        (nothing if after is None else after).cast("bigint").alias("after"),
        # Not cast where it is of that type already: Spark would make every message again.
        (nothing.cast(_SENDS) if sends is None else sends).alias("sends"),
    )
    return F.struct(*parts)


def _no_sends() -> Column:
    return F.array().cast(_SENDS)


def _literal(given: str | Column) -> Column:
    return F.lit(given) if isinstance(given, str) else given


def _bytes(given: str | Column | None) -> Column:
    found = F.lit(None) if given is None else F.col(given) if isinstance(given, str) else given
    return found.cast("binary")


def _headers(given: str | Column | Mapping[str, str | bytes | Column] | None) -> Column:
    if given is None:
        return F.lit(None).cast(HEADERS)
    if not isinstance(given, Mapping):
        return (F.col(given) if isinstance(given, str) else given).cast(HEADERS)
    made = [
        F.struct(
            F.lit(name).alias("key"),
            (F.lit(value) if isinstance(value, str | bytes) else value)
            .cast("binary")
            .alias("value"),
        )
        for name, value in given.items()
    ]
    return F.array(*made).cast(HEADERS)
