"""What is asked of a Spark session and its workers before a run begins."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from redrive.config import Settings
from redrive.engines.spark import spark_session
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError, RedriveError


class OneWorker:
    """A Spark context whose only worker is this process."""

    def __init__(self, *shipped: str) -> None:
        self.environment: dict[str, str] = {}
        self.pythonExec = "python3"
        self._python_includes = [*shipped]

    def setJobDescription(self, _: str) -> None:  # noqa: N802 -- Spark's name
        pass

    def parallelize(self, given, _):
        return SimpleNamespace(
            map=lambda work: SimpleNamespace(collect=lambda: [work(each) for each in given])
        )


@pytest.fixture
def spark():
    return SimpleNamespace(sparkContext=OneWorker())


@pytest.fixture
def spec(tmp_path, monkeypatch):
    name = f"shop_{os.urandom(4).hex()}"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{name}.py").write_text(
        "from redrive import App\napp = App('shop', delivery='idempotent')\n"
        "@app.handler('orders')\ndef handle(record, ctx): ...\n"
    )
    return Spec(
        target=f"{name}:app",
        folder=str(tmp_path),
        settings=Settings(),
        scratch=str(tmp_path),
        slots=2,
        run="test",
    )


def test_a_worker_that_has_everything_is_fine(spark, spec):
    spark_session.check_workers(spark, spec)


@pytest.mark.parametrize("package", ["confluent_kafka", "pyarrow", "psycopg"])
def test_a_package_that_the_workers_lack_is_named(spark, spec, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ConfigurationError, match=rf"cannot run shop_.*: .*{package}.*; ship redrive"
    ):
        spark_session.check_workers(spark, spec)


@pytest.fixture
def lacking(monkeypatch):
    """Workers that lack a package, by another Python than the driver's."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")


def test_where_nobody_chose_a_python_it_is_said_how(spark, spec, lacking):
    with pytest.raises(ConfigurationError) as caught:
        spark_session.check_workers(spark, spec)
    assert "they are the first python3 on the path" in str(caught.value)
    assert f"(here {sys.executable}) before the session is made" in str(caught.value)
    assert "PYSPARK_PYTHON" not in os.environ, "which is the user's to set"


def test_workers_that_run_nothing_at_all_are_reported_with_their_python(spark, spec, lacking):
    def parallelize(*_):
        raise RuntimeError("No module named 'redrive'")

    spark.sparkContext.parallelize = parallelize
    with pytest.raises(RedriveError, match=r"No module named 'redrive'.*PYSPARK_PYTHON is not set"):
        spark_session.check_workers(spark, spec)


def test_a_python_that_somebody_chose_is_not_questioned(spark, spec, lacking, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/app/bin/python")
    with pytest.raises(ConfigurationError) as caught:
        spark_session.check_workers(spark, spec)
    assert "PYSPARK_PYTHON" not in str(caught.value)


def test_a_package_without_the_ledgers_files_is_refused(spark, spec, monkeypatch):
    def migrations() -> None:
        raise FileNotFoundError("redrive/ledger/migrations")

    monkeypatch.setattr("redrive.ledger.migrating.migrations", migrations)
    with pytest.raises(ConfigurationError, match="redrive/ledger/migrations"):
        spark_session.check_workers(spark, spec)


def test_planners_find_what_was_shipped(spark, monkeypatch):
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: "/files")
    spark_session.reach_planners(spark)
    assert spark.sparkContext.environment["PYTHONPATH"] == ""
    spark = SimpleNamespace(sparkContext=OneWorker("redrive.zip", "shop.py"))
    spark.sparkContext.environment["PYTHONPATH"] = "/own"
    for _ in range(2):  # and runs in one session do not add it again and again
        spark_session.reach_planners(spark)
    found = spark.sparkContext.environment["PYTHONPATH"].split(os.pathsep)
    assert found == ["/own", "/files/redrive.zip", "/files/shop.py", "/files"]


@pytest.mark.parametrize(
    ("master", "options"),
    [
        ("local", {}),
        ("local[8]", {}),
        ("local[*, 3]", {}),
        ("local[8]", {"spark.task.maxFailures": "4"}),  # which Spark does not look at there
        (None, {"spark.master": "local[8]"}),
        ("spark://there:7077", {"spark.task.maxFailures": "3"}),
        ("local-cluster[2,1,1024]", {"spark.task.maxFailures": "1"}),
        (None, {"spark.speculation": "True"}),
    ],
)
def test_what_no_session_could_run_is_refused_before_one_starts(master, options):
    with pytest.raises(ConfigurationError, match=r"may not fail often enough|spark\.speculation"):
        spark_session.check_options(master, options)


@pytest.mark.parametrize(
    ("master", "options"),
    [
        (None, {}),
        ("local[8, 4]", {}),
        ("local[*,4]", {"spark.speculation": "false"}),
        ("spark://there:7077", {}),
        ("local-cluster[2,1,1024]", {}),
        ("yarn", {"spark.task.maxFailures": "8"}),
        ("local[8, x]", {}),  # Spark says what is wrong with it
    ],
)
def test_what_may_be_run_is_not(master, options):
    spark_session.check_options(master, options)
