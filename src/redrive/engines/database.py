"""What must be so in the database before a run begins, for deliveries that have one."""

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

log: Final = logging.getLogger("redrive")

_CONNECT_SECONDS: Final = 15
_DAY: Final = 24 * 3600 * 1000
_DEFAULT_RETENTION: Final = 7 * _DAY
_AGES: Final = 100 * 365 * _DAY
_TO_SPARE: Final = _DAY
"""Brokers delete what is too old a while later, and clocks differ."""


def unready(settings: Settings, target: str) -> str | None:
    """What is missing in the database, with what to run; None: nothing."""
    require_psycopg()
    import psycopg

    from redrive.ledger.address import checked
    from redrive.ledger.migrating import require

    dsn = checked(settings.dsn())
    try:
        with psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS) as connection:
            require(connection, settings.ledger_schema)
    except psycopg.Error as error:
        return f"the database {settings.database} cannot be used: {str(error).strip()}"
    except LedgerError as error:
        return str(error).replace("ledger migrate`", f"ledger migrate {target}`")
    return None


def inbox_ttl(app: App, settings: Mapping[str, Mapping[str, str]]) -> int | None:
    """How long ids are remembered, in milliseconds; None: for ever.

    Longer than a record can come back: duplicates would come back with it. Where this user may not
    see the settings of a source topic, nobody knows how long that is.
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
                f'app "{app.name}": inbox_ttl is {text(app.inbox_ttl)}, but a record of {topic} can'
                f" come back for {text(retention + retries)}: its topic keeps it for"
                f" {text(retention)}, and it is retried for up to {text(retries)}; give a longer"
                " inbox_ttl, or none"
            )
    if problems:
        raise ConfigurationError(problems)
    if app.inbox_ttl is not None or len(needed) < len(app.handlers):
        return app.inbox_ttl
    return max(needed) + _TO_SPARE


def _warn_of_ages(app: App, topic: str) -> None:
    if app.inbox_ttl is not None:
        log.warning(
            "%s keeps its records for ever: whoever reads it again after inbox_ttl (%s) has them"
            " handled again",
            topic,
            text(app.inbox_ttl),
        )


def longest(policy: RetryPolicy) -> int:
    """How long a record may be retried, in milliseconds, as far as its policy says."""
    return policy.max_duration if policy.max_duration is not None else sum(policy.delays)
