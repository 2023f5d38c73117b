"""The database's address, as libpq reads it."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

from redrive.config import DATABASE_NOT_UNDERSTOOD
from redrive.errors import ConfigurationError


def checked(dsn: str) -> str:
    """The address, if libpq can parse it; otherwise an error that quotes none of it.

    libpq's own errors quote what they cannot parse, which may be part of a password.
    """
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ConfigurationError(f"the database {DATABASE_NOT_UNDERSTOOD}") from None
    return dsn
