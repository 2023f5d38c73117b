"""What the database must be like before a run begins, for deliveries that have one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from redrive.app import App
from redrive.config import Settings
from redrive.delivery.equipping import require_psycopg
from redrive.durations import text
from redrive.errors import ConfigurationError, LedgerError
from redrive.policy import RetryPolicy
from redrive.tuning import START_CONNECT_SECONDS

log: Final = logging.getLogger("redrive")

_DAY: Final = 24 * 3600 * 1000
_DEFAULT_RETENTION: Final = 7 * _DAY
_AGES: Final = 100 * 365 * _DAY
_TO_SPARE: Final = _DAY
"""Brokers delete expired records a while later, and clocks differ."""


def unready(app: App, settings: Settings, target: str) -> str | None:
    """What is missing in the database, with what to run; None: nothing."""
    require_psycopg()
    import psycopg

    from redrive.ledger import privileges
    from redrive.ledger.address import checked
    from redrive.ledger.migrating import require

    dsn = checked(settings.dsn())
    try:
        with psycopg.connect(dsn, connect_timeout=START_CONNECT_SECONDS) as connection:
            schema = settings.ledger_schema
            needed = privileges.needed(app.guarantee)
            if grants := privileges.missing(connection, schema, needed):
                return privileges.sentence(schema, grants)
            require(connection, schema)
    except psycopg.Error as error:
        return f"the database {settings.database} cannot be used: {str(error).strip()}"
    except LedgerError as error:
        return str(error).replace("ledger migrate`", f"ledger migrate {target}`")
    return None


def inbox_ttl(app: App, settings: Mapping[str, Mapping[str, str]]) -> int | None:
    """How long ids are remembered, in milliseconds; None: forever.

    Longer than a record can come back, or duplicates would come back with it. If this user may not
    read the settings of a source topic, it is unknown how long that is.
    """
    needed: list[int] = []
    problems: list[str] = []
    for topic in app.handlers:
        if topic not in settings:
            continue
        retention = int(settings[topic].get("retention.ms", _DEFAULT_RETENTION))
        if not 0 <= retention < _AGES:
            _warn_of_ages(app, topic)
            continue
        retries = longest(app.handlers[topic].retry)
        needed.append(retention + retries)
        if app.inbox_ttl is not None and app.inbox_ttl < retention + retries:
            problems.append(
                f'app "{app.name}": inbox_ttl is {text(app.inbox_ttl)}, but a record of {topic}'
                f" can come back for {text(retention + retries)}: its topic keeps it for"
                f" {text(retention)}, and it is retried for up to {text(retries)}; set a longer"
                " inbox_ttl, or none"
            )
    if problems:
        raise ConfigurationError(problems)
    if app.inbox_ttl is not None or len(needed) < len(app.handlers):
        return app.inbox_ttl
    if app.unhandled is None:
        return None
    return max(needed) + max(_TO_SPARE, app.unhandled)


def _warn_of_ages(app: App, topic: str) -> None:
    if app.inbox_ttl is not None:
        log.warning(
            "%s keeps its records forever: if they are read again after inbox_ttl (%s), they are"
            " handled again",
            topic,
            text(app.inbox_ttl),
        )


def longest(policy: RetryPolicy) -> int:
    """How long a record may be retried, in milliseconds, as far as its policy says."""
    return policy.max_duration if policy.max_duration is not None else sum(policy.delays)
