"""Settings: where Kafka and the database are, and how to log in.

Arguments come first, then the environment (`REDRIVE_*`), then TOML (`redrive.toml`, or the file
that `REDRIVE_CONFIG` names). They are merged key by key, so that a password can come from the
environment and the rest from a file. All mistakes are reported at once, each with its place.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypedDict, get_args

from redrive.errors import ConfigurationError
from redrive.secret import Dsn, Secret, is_secret

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Plain = str | int | float | bool
"""The types that a client library's setting can have."""

FILE: Final = "redrive.toml"
DATABASE_NOT_UNDERSTOOD: Final = (
    "is not a PostgreSQL address: write postgresql://user:password@host:port/name, and escape any"
    " %, @, :, / or ? in user and password as %25, %40, %3A, %2F or %3F"
)
_NO_SETTINGS: Final[Mapping[str, Plain | Secret]] = {}


class SecurityArguments(TypedDict, total=False):
    """How to log in. Certificates and key are PEM: the text itself, or the path of a file."""

    protocol: Protocol
    mechanism: Mechanism
    user: str
    password: str | Secret
    ca: str
    certificate: str
    key: str | Secret


class SettingsArguments(TypedDict, total=False):
    """Settings that can be given to App() or on the command line."""

    bootstrap: str
    database: str | Dsn
    ledger_schema: str
    security: SecurityArguments
    librdkafka: Mapping[str, Plain]
    spark: Mapping[str, Plain]


@dataclass(frozen=True, kw_only=True)
class Security:
    """One neutral set, for librdkafka (kafka/config.py) and Java (kafka/java_config.py)."""

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    user: str | None = None
    password: Secret | None = None
    ca: str | None = None
    certificate: str | None = None
    key: Secret | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where Kafka and the database are, and how to log in. Safe to print."""

    bootstrap: str | None = None
    database: Dsn | None = None
    ledger_schema: str = "redrive"
    security: Security = field(default_factory=Security)
    librdkafka: Mapping[str, Plain | Secret] = field(default_factory=dict)
    spark: Mapping[str, Plain | Secret] = field(default_factory=dict)

    def servers(self) -> str:
        """The address of Kafka; without one, an error that says how to set it."""
        if self.bootstrap is None:
            raise ConfigurationError(
                "no Kafka address: give --bootstrap host:port, set REDRIVE_BOOTSTRAP, or write"
                f' bootstrap = "host:port" in {FILE} (`redrive local up` starts a Kafka and prints'
                " its address)"
            )
        return self.bootstrap

    def dsn(self) -> str:
        """The address of the database; without one, an error that says how to set it."""
        if self.database is None:
            raise ConfigurationError(
                "no database: set REDRIVE_DATABASE=postgresql://user@host/name, or write"
                f' database = "postgresql://..." in {FILE}'
            )
        return self.database.reveal()


def addresses(bootstrap: str | None, database: str | None) -> SettingsArguments:
    """Arguments of these addresses, as far as they are given."""
    given: SettingsArguments = {}
    if bootstrap is not None:
        given["bootstrap"] = bootstrap
    if database is not None:
        given["database"] = database
    return given


def load_settings(
    *arguments: SettingsArguments,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """The settings from all places; if there are several arguments, earlier ones win.

    `load_settings(app.settings)` returns those with which `redrive run` would run the app.
    """
    problems: list[str] = []
    environ = os.environ if environ is None else environ
    given: list[_Given] = []
    for argument in arguments:
        given += _flatten(argument, "argument {}", Path(), problems)
    given += _from_environment(environ, problems)
    given += _from_file(environ, folder or Path(), problems)
    values = _first_of_each(given, problems)
    problems += _contradictions(values)
    if problems:
        raise ConfigurationError(problems)
    return _settings({key: one.value for key, one in values.items()})


def pem_text(given: str) -> str:
    """The PEM text, whether a path or the text was given."""
    return given if is_pem(given) else Path(given).read_text()


def is_pem(given: str) -> bool:
    """Whether this is PEM text rather than a path."""
    return given.lstrip().startswith("-----BEGIN")


# The keys


class _Given(NamedTuple):
    key: str
    value: Any
    place: str
    folder: Path
    """What a relative path is relative to: for a path in a file, the file's folder."""


class _MistakeError(Exception):
    """What is wrong with one value; the caller, who knows the place, adds it."""


_Check = Callable[[_Given], Any]


def _text(given: _Given) -> str:
    if not isinstance(given.value, str):
        raise _MistakeError(f"must be text, not {_kind(given.value)}")
    if not given.value.strip():
        raise _MistakeError("is empty")
    return given.value


def _secret(given: _Given) -> Secret:
    return given.value if isinstance(given.value, Secret) else Secret(_text(given))


def _dsn(given: _Given) -> Dsn:
    dsn = given.value if isinstance(given.value, Dsn) else Dsn(_text(given))
    if not dsn.understood:
        # Nor is it known which part is a secret: none of it is quoted.
        raise _MistakeError(DATABASE_NOT_UNDERSTOOD)
    return dsn


def _schema(given: _Given) -> str:
    name = _text(given)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,55}", name):
        raise _MistakeError("must be a schema name: lower-case letters, digits and _")
    return name


def _word(allowed: object) -> _Check:
    def check(given: _Given) -> str:
        word = _text(given).upper()
        if word not in get_args(allowed):
            known = " or ".join(map(repr, get_args(allowed)))
            raise _MistakeError(f"is {given.value!r}; it can be {known}")
        return word

    return check


def _pem(given: _Given) -> str:
    text = _text(given)
    if is_pem(text):
        return text
    path = (given.folder / Path(text).expanduser()).absolute()
    if not path.is_file():
        raise _MistakeError("is neither PEM text (-----BEGIN ...) nor a file that exists")
    return str(path)


def _pem_secret(given: _Given) -> Secret:
    value = given.value.reveal() if isinstance(given.value, Secret) else given.value
    return Secret(_pem(given._replace(value=value)))


_KEYS: Final[Mapping[str, _Check]] = {
    "bootstrap": _text,
    "database": _dsn,
    "ledger_schema": _schema,
    "security.protocol": _word(Protocol),
    "security.mechanism": _word(Mechanism),
    "security.user": _text,
    "security.password": _secret,
    "security.ca": _pem,
    "security.certificate": _pem,
    "security.key": _pem_secret,
}
_TABLES: Final = ("security", "librdkafka", "spark")
_OPEN_TABLES: Final = ("librdkafka", "spark")
_OWN: Final[Mapping[str, str]] = {
    "bootstrap.servers": "use `bootstrap`",
    "metadata.broker.list": "use `bootstrap`",
    **dict.fromkeys(
        ("acks", "request.required.acks", "enable.idempotence", "partitioner"),
        "redrive sets it itself: its guarantees depend on it",
    ),
    **dict.fromkeys(
        ("isolation.level", "enable.auto.commit", "enable.auto.offset.store"),
        "redrive sets it itself: its guarantees depend on it",
    ),
    **dict.fromkeys(
        ("enable.partition.eof", "auto.offset.reset", "delivery.report.only.error"),
        "redrive sets it itself: reading and writing depend on it",
    ),
    **dict.fromkeys(("group.id", "transactional.id"), "it follows from the app's name"),
}


def _plain(given: _Given) -> Plain | Secret:
    name = given.key.partition(".")[2]
    if given.key.startswith("librdkafka.") and name in _OWN:
        raise _MistakeError(f"cannot be set: {_OWN[name]}")
    if isinstance(given.value, Secret):
        return given.value
    if not isinstance(given.value, str | int | float):
        raise _MistakeError(f"must be text, a number or true/false, not {_kind(given.value)}")
    return Secret(str(given.value)) if is_secret(name) else given.value


def _check_of(key: str) -> _Check:
    if key.partition(".")[0] in _OPEN_TABLES:
        return _plain
    if key in _KEYS:
        return _KEYS[key]
    known = sorted({*_KEYS, *_OPEN_TABLES})
    close = get_close_matches(key, known, n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"known settings: {', '.join(known)}"
    raise _MistakeError(f"is not a setting: {hint}")


# The places


def _flatten(
    source: Mapping[str, Any], place: str, folder: Path, problems: list[str]
) -> Iterator[_Given]:
    for name, value in source.items():
        if name not in _TABLES:
            yield _Given(name, value, place.format(name), folder)
        elif not isinstance(value, Mapping):
            problems.append(
                f"{place.format(name)}: must be a table of settings, not {_kind(value)}"
            )
        else:
            for inner, inner_value in _dotted(value, deep=name in _OPEN_TABLES):
                key = f"{name}.{inner}"
                yield _Given(key, inner_value, place.format(key), folder)


def _dotted(table: Mapping[str, Any], *, deep: bool) -> Iterator[tuple[str, Any]]:
    """TOML turns `socket.timeout.ms = 1` into tables; client libraries want the dotted name."""
    for name, value in table.items():
        if deep and isinstance(value, Mapping):
            for inner, inner_value in _dotted(value, deep=True):
                yield f"{name}.{inner}", inner_value
        else:
            yield name, value


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> Iterator[_Given]:
    known = {"REDRIVE_" + key.upper().replace(".", "_"): key for key in _KEYS}
    for name in environ:
        if name in known:
            yield _Given(known[name], environ[name], f"environment variable {name}", Path())
        elif name.startswith("REDRIVE_") and name != "REDRIVE_CONFIG":
            # Other parts of redrive have their own variables: only near misses are mistakes.
            close = get_close_matches(name, [*known, "REDRIVE_CONFIG"], n=1, cutoff=0.85)
            problems += [
                f'environment variable {name}: is not a setting: did you mean "{match}"?'
                for match in close
            ]


def _from_file(environ: Mapping[str, str], folder: Path, problems: list[str]) -> Iterable[_Given]:
    named = environ.get("REDRIVE_CONFIG")
    path = folder / (named or FILE)
    if named is None and not path.exists():
        return ()
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        whence = " (named by REDRIVE_CONFIG)" if named else ""
        problems.append(f"{path}{whence}: cannot be read: {error.strerror}")
        return ()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path}: is not TOML: {error}")
        return ()
    return _flatten(content, f"{path}: {{}}", path.parent, problems)


def _first_of_each(given: Iterable[_Given], problems: list[str]) -> dict[str, _Given]:
    values: dict[str, _Given] = {}
    for one in given:
        try:
            value = _check_of(one.key)(one)
        except _MistakeError as mistake:
            problems.append(f"{one.place}: {mistake}")
        else:
            values.setdefault(one.key, one._replace(value=value))
    return values


# The whole


def _contradictions(values: Mapping[str, _Given]) -> Iterator[str]:
    protocol = values["security.protocol"].value if "security.protocol" in values else "PLAINTEXT"
    by_hand = any(key.startswith("librdkafka.sasl.") for key in values)
    for part in ("mechanism", "user", "password"):
        one = values.get(f"security.{part}")
        if one is None and protocol.startswith("SASL") and not by_hand:
            place = values["security.protocol"].place
            yield f"{place}: {protocol} needs security.{part}"
        elif one is not None and not protocol.startswith("SASL"):
            yield f"{one.place}: has no effect with {protocol}: set security.protocol to SASL_SSL"
    for part in ("ca", "certificate", "key"):
        one = values.get(f"security.{part}")
        if one is not None and not protocol.endswith("SSL"):
            yield f"{one.place}: has no effect with {protocol}: set security.protocol to SSL"
    for part, other in (("certificate", "key"), ("key", "certificate")):
        one = values.get(f"security.{part}")
        if one is not None and f"security.{other}" not in values:
            yield f"{one.place}: needs security.{other} as well"


def _settings(values: Mapping[str, Any]) -> Settings:
    def table(name: str) -> dict[str, Any]:
        prefix = f"{name}."
        return {
            key.removeprefix(prefix): value
            for key, value in values.items()
            if key.startswith(prefix)
        }

    own = {one.name for one in fields(Settings)} - set(_TABLES)
    return Settings(
        **{key: value for key, value in values.items() if key in own},
        security=Security(**table("security")),
        librdkafka=table("librdkafka"),
        spark=table("spark"),
    )


def _kind(value: object) -> str:
    """The kind of a value and never the value: it might be a secret."""
    return {"dict": "a table", "list": "a list", "NoneType": "nothing"}.get(
        type(value).__name__, type(value).__name__
    )
