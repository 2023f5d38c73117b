"""What a Spark session must be like before an app is run in it."""

from __future__ import annotations

import importlib
import logging
import os
import platform
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redrive import sources
from redrive.engines.spark.runtime import load
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError, RedriveError
from redrive.secret import HIDDEN, is_secret

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true"
"""Without it Arrow checks every access to its memory. Spark writes rows to it with calls that make
room by themselves."""
_LOCAL: Final = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
"""A master on this machine, and how often its tasks may fail: once, if it does not say."""
_FAILURES: Final = 4
"""How often they may on a cluster, if nobody says."""
_STATE: Final = re.compile(r"SQLSTATE: \w{5}")
_NEVER_CAME: Final = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, which a loaded machine may not manage."""


def default_master() -> str:
    """More task slots than cores, because handlers wait; and tasks may fail a few times."""
    return f"local[{max(8, 2 * (os.cpu_count() or 1))}, 4]"


def master_of(master: str | None, options: Mapping[str, object]) -> str:
    """Where a session with these settings runs."""
    return master or str(options.get("spark.master") or default_master())


def keep_commands_unlogged() -> None:
    """See that nobody logs what Java is sent: settings are in it, and the passwords among them."""
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_above_debug)  # once, however often it is added


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def session(
    app_name: str,
    master: str | None,
    options: Mapping[str, str],
    *,
    log_level: str = "fatal",
    on_line: Callable[[str], None] | None = None,
) -> SparkSession:
    """A session for `redrive run`, with redrive's own interpreter for the workers.

    What Spark and its workers print is given to `on_line`, line by line, where that is wanted.
    """
    keep_commands_unlogged()
    # Before Spark starts: its workers take the first python3 on the path otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    conf = SparkConf()
    java = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()} -Dredrive.log.level={log_level} {_ARROW}"
    defaults = {**_DEFAULTS, "spark.driver.extraJavaOptions": java}
    where = master_of(master, options)
    if where.startswith("local"):
        # Elsewhere `check_workers` has to find out first whether the workers have redrive at all.
        defaults["spark.python.daemon.module"] = "redrive.engines.spark.daemon"
    conf.setAll(list({**defaults, **options, "spark.master": where}.items()))
    conf.setAppName(f"redrive {app_name}")
    try:
        SparkContext(conf=conf, gateway=_gateway(conf, on_line))
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkRuntimeError, OSError) as error:
        raise RedriveError(
            f"Spark does not start: {last_line(error)}; `redrive doctor` looks at Java"
        ) from error


def _gateway(conf: SparkConf, on_line: Callable[[str], None] | None) -> Any:
    """Spark's own process, with its stderr in our hands: it would tear a terminal's picture.

    Settings come to it on its command line, which everybody on the machine can read. So secrets
    are left out; the context is given them later, over its own connection.
    """
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    public = SparkConf().setAll([one for one in conf.getAll() if not is_secret(one[0])])
    if on_line is None:
        return launch_gateway(public)  # type: ignore[no-untyped-call]  # -- theirs
    ours, its = os.pipe()
    threading.Thread(target=_pump, args=(ours, on_line), daemon=True).start()
    try:
        return launch_gateway(public, {"stderr": its})  # type: ignore[no-untyped-call]  # -- theirs
    finally:
        os.close(its)


def _pump(source: int, on_line: Callable[[str], None]) -> None:
    with open(source, errors="replace") as lines:
        for line in without_last_words(lines):
            if line.strip() and not line.startswith(_NOISE):
                on_line(line.rstrip())


def without_last_words(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the stack traces of planners whose query was stopped.

    Spark closes their connection while they speak, and they complain of it.
    """
    trace: list[str] = []
    between: list[str] = []  # what links a trace to the one before: it goes with the second
    for line in lines:
        if line.startswith("Traceback "):
            yield from _unless_last_words(trace)
            trace, between = [*between, line], []
        elif trace and line[:1].isspace():
            trace.append(line)
        elif trace:
            yield from _unless_last_words([*trace, line])
            trace = []
        elif line.startswith(_BETWEEN):
            between = [line]
        elif line.strip() or not between:
            yield from (*between, line)
            between = []
    yield from (*_unless_last_words(trace), *between)


def _unless_last_words(trace: list[str]) -> list[str]:
    of_planner = any("python_streaming_source_runner" in line for line in trace)
    cut_off = bool(trace) and trace[-1].startswith((" ", *_CUT_OFF))
    return [] if of_planner and cut_off else trace


_BETWEEN: Final = ("During handling of the above", "The above exception was the direct")
_CUT_OFF: Final = ("BrokenPipeError", "ConnectionResetError", "EOFError")
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_NOISE: Final = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
)
_DEFAULTS: Final = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Which settings Spark's own pages and logs hide; what it would hide by itself is among them.
    "spark.redaction.regex": f"(?i){HIDDEN}",
}


def check(spark: SparkSession) -> None:
    """Find what would stop a run, all at once."""
    if not hasattr(spark, "_jvm"):
        raise ConfigurationError(
            "this is a Spark Connect session, which cannot run Python on its driver: use a classic"
            " session (spark-submit, or SparkSession.builder.master(...))"
        )
    names = ("spark.speculation", "spark.task.maxFailures")
    _refuse(spark.sparkContext.master or "", {name: spark.conf.get(name, None) for name in names})


def check_options(master: str | None, options: Mapping[str, object]) -> None:
    """Find what of it can be found before Spark starts, which takes long."""
    _refuse(master_of(master, options), options)


def _refuse(master: str, options: Mapping[str, object]) -> None:
    problems: list[str] = []
    # As Spark reads it: in capitals or not.
    if str(options.get("spark.speculation")).strip().lower() == "true":
        problems.append(
            "spark.speculation is on: it would run handlers twice on purpose; switch it off"
        )
    if _task_failures(master, options) < 4:
        problems.append(
            f"with the master {master} a task may not fail often enough for a deadly record to be"
            " found: use local[N, 4], or on a cluster spark.task.maxFailures=4"
        )
    if problems:
        raise ConfigurationError(problems)


def folder_of(target: str) -> str:
    """Where the app's module was imported from, for workers that see the same folders."""
    folder = sources.folder_of(target.partition(":")[0])
    return folder and str(Path(folder).resolve())


def reach_planners(spark: SparkSession) -> None:
    """Have the planners' processes, on this machine, find what --py-files has brought.

    Spark tells its workers of it, but not the processes that plan for a streaming source.
    """
    from pyspark import SparkFiles

    context = spark.sparkContext
    shipped = context._python_includes or []  # noqa: SLF001 -- nothing else tells
    root = Path(SparkFiles.getRootDirectory())
    before = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    paths = [*before, *(str(root / name) for name in shipped), *([str(root)] if shipped else ())]
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))


def check_workers(spark: SparkSession, spec: Spec) -> None:
    """Run one task that imports what workers need; say in one sentence what differs."""
    here = f"{platform.python_version()}, redrive {_version()}"
    spark.sparkContext.setJobDescription("redrive: what do the workers have?")
    try:
        found = spark.sparkContext.parallelize([spec], 1).map(_look).collect()[0]
    except Exception as error:
        said = f"the workers cannot run anything: {last_line(error)}"
        raise RedriveError(said + _unchosen_python(spark)) from error
    if found["problem"]:
        raise ConfigurationError(
            f"a Spark worker ({found['python']}) cannot run {spec.target}: {found['problem']};"
            " ship redrive and the app to the executors as the Spark page of the docs says"
            f"{_unchosen_python(spark)}"
        )
    if found["is"] != here:
        raise ConfigurationError(
            f"the driver runs Python {here}, the workers {found['is']}: set PYSPARK_PYTHON to the"
            " same environment on both"
        )


def _unchosen_python(spark: SparkSession) -> str:
    """What to set where nobody has said which Python the workers are; the session is the user's.

    It was made with what was set then: a start can neither change that, nor would it know which
    interpreter the machines of a cluster have.
    """
    python = spark.sparkContext.pythonExec
    if "PYSPARK_PYTHON" in os.environ or shutil.which(python) == sys.executable:
        return ""
    return (
        f"; PYSPARK_PYTHON is not set, so they are the first {python} on the path: set it to the"
        f" interpreter that has redrive (here {sys.executable}) before the session is made"
    )


def _look(spec: Spec) -> dict[str, Any]:
    """What a worker has; runs there."""
    found: dict[str, Any] = {"python": sys.executable, "problem": "", "is": ""}
    try:
        for needed in ("confluent_kafka", "pyarrow"):  # Spark has rows of sources in Arrow's form
            importlib.import_module(needed)
        app = load(spec, strict=True)
        if app.guarantee.database:
            importlib.import_module("psycopg")
            from redrive.ledger import migrating

            migrating.migrations()  # files of SQL, which a package of modules alone leaves out
        found["is"] = f"{platform.python_version()}, redrive {_version()}"
    except Exception as error:  # noqa: BLE001 -- whatever it is, the driver says it
        found["problem"] = f"{type(error).__name__}: {error}"
    return found


def _version() -> str:
    import redrive

    return redrive.__version__


def _task_failures(master: str, options: Mapping[str, object]) -> int:
    """How often a task may fail; what is not a number is Spark's to refuse."""
    here = _LOCAL.fullmatch(master)
    told = (here[1] or 1) if here else (options.get("spark.task.maxFailures") or _FAILURES)
    return int(str(told)) if str(told).isdecimal() else _FAILURES


def last_line(error: BaseException) -> str:
    """The last line of an error's text: of a stack trace, the error itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def last_failure(error: BaseException) -> str:
    """How the last attempt of a task failed, by which its job did."""
    found = re.search(r"most recent failure: (.*)", str(error))
    return found[1] if found else last_line(error)


def never_came(error: BaseException) -> bool:
    """Whether a query ended because its Python process did not start within Spark's ten seconds."""
    return _NEVER_CAME in str(error).partition("=== Streaming Query ===")[0]


def cause(error: BaseException) -> str:
    """Why a streaming query ended, in one line; nothing, if its process died or never came."""
    told = _STATE.sub("", str(error).partition("=== Streaming Query ===")[0])
    if never_came(error):
        return ""
    _, found, text = told.partition("terminated with exception:")
    if not found:
        return last_line(Exception(told))
    text = text.replace("(no cause message)", "")
    return last_line(Exception(text)) if text.strip() else ""
