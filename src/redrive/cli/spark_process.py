"""The Spark process of a command: started, kept quiet, stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from redrive.config import Settings
from redrive.errors import ConfigurationError, RedriveError
from redrive.logs import foreign_line
from redrive.secret import Secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SparkLogLevel = Literal["off", "fatal", "error", "warn", "info", "debug"]
ON_SPARK: Final = "Only with --engine spark"
_Result = TypeVar("_Result")


def require_spark(*others: str) -> None:
    """Say what to install if Spark or another package is missing."""
    missing = [name for name in ("pyspark", "pyarrow", *others) if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"not installed: {', '.join(missing)}; pip install 'redrive[spark,local]'"
        )


def start_spark(
    app_name: str,
    settings: Settings,
    master: str | None = None,
    log_level: str = "fatal",
    *,
    connector: bool = False,
) -> SparkSession:
    """Spark for this process; its output goes to stderr.

    With `connector`, it can read Kafka itself, for frame handlers.
    """
    from redrive.engines.spark.spark_session import session
    from redrive.spark import connector_jars

    given = {
        name: value.reveal() if isinstance(value, Secret) else str(value)
        for name, value in settings.spark.items()
    }
    if connector and not given.keys() & {"spark.jars", "spark.jars.packages"}:
        given["spark.jars"] = connector_jars()
    return beside(
        lambda: session(app_name, master, given, log_level=log_level, on_line=foreign_line)
    )


def beside(work: Callable[[], _Result]) -> _Result:
    """Run it in a thread, and wait, so that this thread can handle signals meanwhile.

    In the main thread Spark would handle SIGINT itself, and print stack traces.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def work_there() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 -- it is raised again, over here
            errors.append(error)

    thread = Thread(target=work_there, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def ended(spark: SparkSession) -> Iterator[None]:
    """Stop Spark after the block; if it died by itself, the error is one sentence."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # -- theirs

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        raise RedriveError(
            "Spark's own process has died; nothing is lost: run it again, with"
            " --spark-log-level error to see why"
        ) from error
    finally:
        try:
            spark.stop()
        except (Py4JError, ConnectionError):
            pass
