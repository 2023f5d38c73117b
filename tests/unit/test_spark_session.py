"""What is asked of a Spark session and its workers before a run begins."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from redrive.config import Settings
from redrive.engines.spark import session
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError


class OneWorker:
    """A Spark context whose only worker is this process."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self._python_includes: list[str] = []

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
    session.probe(spark, spec)


@pytest.mark.parametrize("package", ["confluent_kafka", "pyarrow", "psycopg"])
def test_a_package_that_the_workers_lack_is_named(spark, spec, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ConfigurationError, match=rf"cannot run shop_.*: .*{package}.*; ship redrive"
    ):
        session.probe(spark, spec)


def test_a_package_without_the_ledgers_files_is_refused(spark, spec, monkeypatch):
    def migrations() -> None:
        raise FileNotFoundError("redrive/ledger/migrations")

    monkeypatch.setattr("redrive.ledger.migrating.migrations", migrations)
    with pytest.raises(ConfigurationError, match="redrive/ledger/migrations"):
        session.probe(spark, spec)


def test_planners_find_what_was_shipped(spark, monkeypatch):
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: "/files")
    session.reach_planners(spark)
    assert spark.sparkContext.environment["PYTHONPATH"] == ""
    spark.sparkContext.environment["PYTHONPATH"] = "/own"
    spark.sparkContext._python_includes = ["redrive.zip", "shop.py"]
    for _ in range(2):  # and runs in one session do not add it again and again
        session.reach_planners(spark)
    found = spark.sparkContext.environment["PYTHONPATH"].split(os.pathsep)
    assert found == ["/own", "/files/redrive.zip", "/files/shop.py", "/files"]
