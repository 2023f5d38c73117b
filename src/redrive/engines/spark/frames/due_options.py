"""The options of `redrive-due`, checked all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from redrive.durations import milliseconds
from redrive.errors import ConfigurationError
from redrive.record import is_topic_name
from redrive.tuning import DUE_MOST_RECORDS

_STARTS: Final = ("earliest", "latest")
_KNOWN: Final = {
    "topics": "the delay topics, separated by spaces or commas",
    "delay": "how long records wait, such as 5m; by default as the end of a topic's name says",
    "bootstrap": "the address of Kafka; by default that of redrive's settings",
    "startingoffsets": "earliest (the default) or latest",
    "maxrecordsperbatch": "at most this many records in one batch; 500000 by default",
    "failondataloss": "true (the default): stop where records are gone; false: say so, and go on",
}
_SPELLED: Final = {
    "startingoffsets": "startingOffsets",
    "maxrecordsperbatch": "maxRecordsPerBatch",
    "failondataloss": "failOnDataLoss",
}


@dataclass(frozen=True)
class DueOptions:
    """What somebody wants to read."""

    delays: Mapping[str, int]
    """The delay topics with their delays, in milliseconds."""
    bootstrap: str | None = None
    from_latest: bool = False
    most: int = DUE_MOST_RECORDS
    fail_on_data_loss: bool = True


def read(given: Mapping[str, str]) -> DueOptions:
    """The options, or a ConfigurationError that names every mistake in them."""
    options = {name.lower(): str(value).strip() for name, value in given.items()}
    problems = list(_unknown(options))
    delays: dict[str, int] = {}
    topics = options.get("topics", "").replace(",", " ").split()
    if not topics:
        problems.append(f"topics is missing: {_KNOWN['topics']}")
    for topic in topics:
        try:
            delays[topic] = _delay(topic, options.get("delay"))
        except ConfigurationError as mistake:
            problems.append(str(mistake))
    start = options.get("startingoffsets", "earliest")
    if start not in _STARTS:
        problems.append(f"startingOffsets is {start!r}; it can be {' or '.join(_STARTS)}")
    most = options.get("maxrecordsperbatch", str(DUE_MOST_RECORDS))
    if not most.isdecimal() or not int(most):
        problems.append(f"maxRecordsPerBatch is {most!r}; it can be 1 or more")
    fail = options.get("failondataloss", "true").lower()
    if fail not in ("true", "false"):
        problems.append(f"failOnDataLoss is {fail!r}; it can be true or false")
    if problems:
        raise ConfigurationError([f"redrive-due: {problem}" for problem in problems])
    bootstrap = options.get("bootstrap")
    return DueOptions(delays, bootstrap, start == "latest", int(most), fail == "true")


def _delay(topic: str, given: str | None) -> int:
    if not is_topic_name(topic):
        raise ConfigurationError(f"topics: {topic!r} is not a name a Kafka topic can have")
    if given is not None:
        delay = milliseconds(given)
    else:
        try:
            delay = milliseconds(topic.rpartition(".retry.")[2])
        except ConfigurationError:
            raise ConfigurationError(
                f'topics: the name of "{topic}" does not end in its delay (.retry.5m): give it as'
                " the option delay"
            ) from None
    if not delay:
        raise ConfigurationError(f'the delay of "{topic}" is 0: then it is not a delay topic')
    return delay


def _unknown(options: Mapping[str, str]) -> Iterator[str]:
    for name in options:
        if name in _KNOWN:
            continue
        known = ", ".join(_SPELLED.get(each, each) for each in _KNOWN)
        hint = f"the options are {known}"
        if name.startswith(("kafka.", "security", "sasl", "ssl")):
            hint = (
                "addresses apart, how to reach Kafka is said by redrive's settings (REDRIVE_* or"
                " redrive.toml), as options are shown in Spark's UI"
            )
        yield f"{name} is no option: {hint}"
