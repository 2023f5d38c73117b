"""Intake: which rows a frame handler sees, and how, as expressions of Spark's SQL.

The rules are those of `processing/intake.py` and of the policy. Here they only choose what the
handler sees; whatever they leave out is judged by the processor itself, so that a difference
between the two stops the run, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from redrive import envelope as envelopes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from redrive.parked_rules import Match, ParkedRule
    from redrive.record import Record, TopicPartition

KAFKA_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key:string,value:binary>>"
)
REDRIVE: Final = (
    "struct<id:string,attempt:int,first_received:timestamp,error:string,"
    "read:struct<number:bigint,topic:string,partition:int,offset:bigint,timestamp:bigint,"
    "due:bigint,"
    "key:binary,value:binary,headers:array<struct<key:string,value:binary>>>>"
)
_WITHIN_PARTITION: Final = (1 << 33) - 1
"""The low bits of Spark's monotonically increasing id count the rows of one partition."""
_TEXTS: Final = (
    "app", "id", "origin_topic", "error_type", "error_message", "error_group", "dead_reason",
)  # fmt: skip
EARLIEST: Final = -62_135_596_800_000
LATEST: Final = 253_402_300_799_999
"""From the year 1 to the end of 9999: Python, which may be in the handler, has no other times."""
_NEEDED_TEXTS: Final = ("app", "id", "origin_topic")
_NUMBERS: Final = {
    "origin_partition": "int",
    "origin_offset": "bigint",
    "origin_timestamp": "bigint",
    "first_received": "bigint",
    "attempt": "int",
    "due": "bigint",
    "not_before": "bigint",
    "unhandled_since": "bigint",
    "replay_count": "int",
}
_SIGNED: Final = ("origin_timestamp",)
_FIELDS: Final = envelopes.FIELDS
_NEEDED_NUMBERS: Final = ("origin_partition", "origin_offset", "first_received", "attempt")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What has to be known of app and batch to tell which rows run."""

    app: str
    was: str | None = None
    """The name that the app had before."""
    topic: str
    """The source topic of the frame handler."""
    topic_id: str
    now: int
    delays: Mapping[str, int] | None = None
    """The delay topics, in the retry lane; None: the main lane."""
    to_origin: bool = False
    """Whether what is due is written back to its origin, and runs there."""
    done: Mapping[TopicPartition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """What is complete beyond the committed offsets: from the first, up to without the second."""
    parked: tuple[ParkedRule, ...] = ()
    """What operators have said about parked records."""
    topic_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    """The ids of the topics of these partitions."""


def kafka_row(record: Record, timestamp: Any, timestamp_type: int) -> tuple[Any, ...]:
    """A record as a row of Spark's Kafka source."""
    return (
        record.key,
        record.value,
        record.topic,
        record.partition,
        record.offset,
        timestamp,
        timestamp_type,
        [*record.headers] or None,
    )


def input_frame(kafka: DataFrame, rules: Rules) -> DataFrame:
    """The rows of Spark's Kafka source that run, as the frame handler sees them."""
    numbered = kafka.selectExpr(
        "*",
        f"monotonically_increasing_id() & {_WITHIN_PARTITION}L AS redrive_number",
        f"{given_headers(rules)} AS redrive_given",
    )
    judged = numbered.selectExpr("*", f"{envelope()} AS redrive_envelope")
    if rules.done:
        judged = judged.where(is_not_done(rules))
    return judged.where(runs(rules)).selectExpr(*columns(rules))


def given_headers(rules: Rules) -> str:
    """Redrive's own headers as texts, in an array; null where redrive did not write a record."""
    # One expression for all of them: what Spark has to plan for every batch, it plans in time.
    names = ", ".join(f"'{envelopes.header_of(field)}'" for field in _FIELDS)
    own = "transform(filter(headers, h -> h.key = name), h -> coalesce(h.value, X''))"
    found = f"transform(array({names}), name -> CAST(try_element_at({own}, -1) AS string))"
    if rules.delays is not None:
        return found
    # The test comes first: most records of a source topic have no such header.
    return f"if({_addressed()}, {found}, null)"


def envelope() -> str:
    """The envelope that these headers say."""
    fields = [f"'{name}', {_given(name)}" for name in _TEXTS]
    fields += [f"'{name}', {_number(name)}" for name in _NUMBERS]
    made = f"named_struct({', '.join(fields)}, 'readable', {_readable()})"
    return f"transform(if(redrive_given IS NULL, null, array(1)), one -> {made})[0]"


def runs(rules: Rules) -> str:
    """Whether a row is for the handler, now."""
    env = "redrive_envelope"
    if rules.delays is None:
        apps = ", ".join(f"'{name}'" for name in (rules.app, rules.was) if name is not None)
        return (
            f"{env} IS NULL OR ({env}.readable AND {env}.app IN ({apps})"
            f" AND {env}.origin_topic = '{rules.topic}'"
            f" AND {_not_after_now(f'coalesce({env}.due, 0)', rules)})"
        )
    if rules.to_origin or not rules.delays:
        return "false"
    due = f"greatest({_due(rules)}, coalesce({env}.not_before, 0))"
    return (
        f"{env}.readable AND {env}.origin_topic = '{rules.topic}'"
        f" AND {env}.dead_reason IS NULL AND {_let_go(_not_after_now(due, rules), rules)}"
    )


def is_not_done(rules: Rules) -> str:
    """Whether a row was not complete before its batch was planned, by what is noted."""
    cases = []
    for (topic, partition), ranges in rules.done.items():
        first, last = (",".join(f"{one[side]}L" for one in ranges) for side in (0, 1))
        within = "(one, other) -> one <= offset AND offset < other"
        found = f"exists(zip_with(array({first}), array({last}), {within}), one -> one)"
        cases.append(f"WHEN topic = '{topic}' AND partition = {partition} THEN NOT {found}")
    return f"CASE {' '.join(cases)} ELSE true END"


def columns(rules: Rules) -> list[str]:
    """The columns that the handler sees: those of the record's origin, and `redrive`."""
    env = "redrive_envelope"
    names = ", ".join(f"'{name}'" for name in envelopes.HEADERS)
    users = f"filter(headers, h -> h.key NOT IN ({names}))"
    fresh = f"{env} IS NULL"
    return [
        "key",
        "value",
        f"if({fresh}, topic, {env}.origin_topic) AS topic",
        f"if({fresh}, partition, {env}.origin_partition) AS partition",
        f"if({fresh}, offset, {env}.origin_offset) AS offset",
        f"if({fresh}, timestamp, {_time(f'{env}.origin_timestamp')}) AS timestamp",
        "timestampType",
        f"if({fresh}, headers, if(size({users}) > 0, {users}, null)) AS headers",
        f"{_redrive(rules)} AS redrive",
    ]


def _redrive(rules: Rules) -> str:
    env, fresh = "redrive_envelope", "redrive_envelope IS NULL"
    fields = {
        "id": f"if({fresh}, concat('{rules.topic_id}/', partition, '/', offset), {env}.id)",
        "attempt": f"if({fresh}, 1, {env}.attempt)",
        "first_received": f"if({fresh}, {_now(rules)}, {_time(f'{env}.first_received')})",
        "error": f"if({env}.error_type IS NULL, null,"
        f" concat_ws(': ', {env}.error_type, {env}.error_message))",
        # What was read, whatever a handler does to the other columns: it may be written again.
        "read": "named_struct('number', redrive_number, 'topic', topic, 'partition', partition,"
        f" 'offset', offset, 'timestamp', unix_millis(timestamp), 'due', {_ran_due(rules)},"
        " 'key', key, 'value', value, 'headers', headers)",
    }
    pairs = ", ".join(f"'{name}', {made}" for name, made in fields.items())
    return f"named_struct({pairs})"


def _due(rules: Rules) -> str:
    """When a record of a delay topic is due: the clocks of its writer and of the broker count."""
    delays = rules.delays or {}
    delay = " ".join(f"WHEN '{topic}' THEN {delay}L" for topic, delay in delays.items())
    return (
        "greatest(coalesce(redrive_envelope.due, 0),"
        f" unix_millis(timestamp) + CASE topic {delay} END)"
    )


def _ran_due(rules: Rules) -> str:
    """When a row was due, where that is known: its lateness is counted from then."""
    if not rules.delays:
        return "CAST(NULL AS bigint)"
    due = f"greatest({_due(rules)}, coalesce(redrive_envelope.not_before, 0))"
    if not rules.parked:
        return due
    return f"transform(array({due}), time -> least(time, {rules.now}L))[0]"


def _let_go(is_due: str, rules: Rules) -> str:
    """Whether a row runs that is due, or not: unless operators have said something about it.

    Of several rules about a row the newest counts, as in `parked_rules.said`.
    """
    cases = []
    for rule in reversed(rules.parked):
        about = [_fits(rule.match), *([_opened(rule, rules)] if rule.kind == "run-now" else [])]
        cases.append(f"WHEN {' AND '.join(about)} THEN {str(rule.kind == 'run-now').lower()}")
    return f"CASE {' '.join(cases)} ELSE {is_due} END" if cases else is_due


def _fits(match: Match) -> str:
    env = "redrive_envelope"
    group = f"coalesce({env}.error_group, '')"
    given = (
        [f"topic = {_literal(each)}" for each in match.topics],
        [f"startswith({group}, {_literal(each)})" for each in match.groups],
        [f"{env}.id = {_literal(each)}" for each in match.ids],
    )
    return " AND ".join(f"({' OR '.join(any_of)})" for any_of in given if any_of) or "true"


def _opened(rule: ParkedRule, rules: Rules) -> str:
    places = [
        f"(topic = '{place.topic}' AND partition = {place.partition} AND offset < {end}L)"
        for place, topic_id in rules.topic_ids.items()
        if (end := rule.end_in(place, topic_id))
    ]
    return f"({' OR '.join(places)})" if places else "false"


def _literal(text: str) -> str:
    """A text that an operator has given, whatever is in it."""
    return f"CAST(X'{text.encode(errors='surrogateescape').hex()}' AS string)"


# What is different in every batch is said within functions of arrays, which Spark does not make
# code of: else every batch had new code, to be compiled and warmed up first.


def _not_after_now(milliseconds: str, rules: Rules) -> str:
    return f"exists(array({milliseconds}), time -> time <= {rules.now}L)"


def _now(rules: Rules) -> str:
    return f"transform(array(offset), one -> timestamp_millis({rules.now}L))[0]"


def _time(milliseconds: str) -> str:
    """A time; null for one that cannot be said."""
    sayable = f"{milliseconds} BETWEEN {EARLIEST}L AND {LATEST}L"
    return f"if({sayable}, timestamp_millis({milliseconds}), null)"


def _readable() -> str:
    """Whether the envelope can be read; what is needed is there, numbers are numbers."""
    needed = [f"coalesce(length({_given(name)}), 0) > 0" for name in _NEEDED_TEXTS]
    texts = ["forall(redrive_given, text -> text IS NULL OR is_valid_utf8(text))"]
    numbers = [
        f"if({_given(name)} IS NULL, {'false' if name in _NEEDED_NUMBERS else 'true'},"
        f" {_given(name)} RLIKE '^{'-?' if name in _SIGNED else ''}[0-9]{{1,19}}\\\\z'"
        f" AND {_number(name)} IS NOT NULL)"
        for name in _NUMBERS
    ]
    return " AND ".join([*needed, *texts, *numbers, f"coalesce({_number('attempt')}, 0) >= 1"])


def _number(name: str) -> str:
    return f"try_cast({_given(name)} AS {_NUMBERS[name]})"


def _given(field: str) -> str:
    """The header of a field: the last of that name, an empty text for null; null for none."""
    return f"redrive_given[{_FIELDS.index(field)}]"


def _addressed() -> str:
    """Whether redrive wrote the record back to this very topic, for whichever app."""
    origin = (
        "try_element_at(filter(headers, h -> h.key = 'redrive-origin-topic' AND h.value IS NOT"
        " NULL), -1)"
    )
    return (
        "headers IS NOT NULL AND exists(headers, h -> h.key = 'redrive-app' AND h.value IS NOT"
        f" NULL) AND coalesce({origin}.value = CAST(topic AS binary), false)"
    )
