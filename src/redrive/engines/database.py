"""What must be so in the database before a run begins, for deliveries that have one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from redrive.app import App
from redrive.config import Settings
from redrive.delivery.equipping import require_psycopg
from redrive.durations import text
from redrive.errors import ConfigurationError, LedgerError
from redrive.policy import RetryPolicy

if TYPE_CHECKING:
    from redrive.ports import TopicState

log: Final = logging.getLogger("redrive")

_CONNECT_SECONDS: Final = 15
_FOR_EVER: Final = -1
_DEFAULT_RETENTION: Final = 7 * 24 * 3600 * 1000


def unready(settings: Settings, target: str) -> str | None:
    """What is missing in the database, with what to run; None: nothing."""
    require_psycopg()
    import psycopg

    from redrive.ledger.migrating import require

    dsn = settings.dsn()
    try:
        with psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS) as connection:
            require(connection, settings.ledger_schema)
    except psycopg.Error as error:
        return f"the database {settings.database} cannot be used: {str(error).strip()}"
    except LedgerError as error:
        return str(error).replace("ledger migrate`", f"ledger migrate {target}`")
    return None


def check_ttl(app: App, sources: Mapping[str, TopicState]) -> None:
    """Refuse to forget ids of records that can come back: duplicates would come back with them."""
    if app.inbox_ttl is None:
        return
    problems: list[str] = []
    for topic, state in sources.items():
        retention = int(state.config.get("retention.ms", _DEFAULT_RETENTION))
        if retention == _FOR_EVER:
            log.warning(
                "%s keeps its records for ever: whoever reads it again after inbox_ttl (%s) has"
                " them handled again",
                topic,
                text(app.inbox_ttl),
            )
            continue
        retries = longest(app.handlers[topic].retry)
        if app.inbox_ttl < retention + retries:
            problems.append(
                f'app "{app.name}": inbox_ttl is {text(app.inbox_ttl)}, but a record of {topic} can'
                f" come back for {text(retention + retries)}: its topic keeps it for"
                f" {text(retention)}, and it is retried for up to {text(retries)}; give a longer"
                " inbox_ttl"
            )
    if problems:
        raise ConfigurationError(problems)


def longest(policy: RetryPolicy) -> int:
    """How long a record may be retried, in milliseconds, as far as its policy says."""
    return policy.max_duration if policy.max_duration is not None else sum(policy.delays)
