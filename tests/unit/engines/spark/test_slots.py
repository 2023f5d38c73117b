"""How many tasks a Spark session can run at once, and what is refused at the start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redrive.engines.spark import spark_session
from redrive.engines.spark.slots import enough_slots, slots
from redrive.engines.spark.spec import Spec
from redrive.errors import ConfigurationError


def java(tasks: int, **conf: Any) -> SimpleNamespace:
    """Spark's own objects, as far as they are asked here."""
    given = {name.replace("_", "."): value for name, value in conf.items()}
    profiles = SimpleNamespace(defaultResourceProfile=lambda: "default")
    context = SimpleNamespace(
        resourceProfileManager=lambda: profiles,
        maxNumConcurrentTasks={"default": tasks}.get,
        conf=lambda: SimpleNamespace(getInt=given.get, getBoolean=given.get),
    )
    return SimpleNamespace(sc=lambda: context)


class Spark:
    _jvm = None

    def __init__(self, java: Any = None, master: str = "local[8, 4]", **conf: str) -> None:
        self.sparkContext = self
        self._jsc = java
        self.master = master
        self.conf = {name.replace("_", "."): value for name, value in conf.items()}


ALLOCATED = {
    "spark_dynamicAllocation_enabled": True,
    "spark_dynamicAllocation_maxExecutors": 10,
    "spark_executor_cores": 4,
    "spark_task_cpus": 2,
}


@pytest.mark.parametrize(
    ("tasks", "conf", "expected"),
    [
        (8, {}, 8),
        (8, {"spark_default_parallelism": 200}, 8),
        (2, ALLOCATED, 20),
        (30, ALLOCATED, 30),
        (3, {"spark_dynamicAllocation_enabled": True}, 3),
        (3, {**ALLOCATED, "spark_dynamicAllocation_enabled": False}, 3),
    ],
)
def test_slots_are_the_tasks_that_can_run_at_once(tasks, conf, expected):
    assert slots(Spark(java(tasks, **conf))) == expected


def test_one_slot_is_refused():
    with pytest.raises(ConfigurationError, match=r"Spark has 1 task slot.*local\[2, 4\] or more"):
        enough_slots(Spark(java(1)))
    assert enough_slots(Spark(java(2))) == 2


@pytest.mark.parametrize("text", ["true", "True", "TRUE", " true"])
def test_speculation_is_refused_however_it_is_written(text):
    with pytest.raises(ConfigurationError, match="speculation is on"):
        spark_session.check(Spark(spark_speculation=text))


def test_a_session_as_it_should_be():
    spark_session.check(Spark())
    spark_session.check(Spark(spark_speculation="False"))
    spark_session.check(Spark(master="spark://a:1", spark_task_maxFailures="4"))


@pytest.mark.parametrize("master", ["local[8]", "local[*]", "local", "local[8, 3]"])
def test_tasks_that_may_not_fail_are_refused(master):
    with pytest.raises(ConfigurationError, match="a task may not fail often enough"):
        spark_session.check(Spark(master=master))


def test_a_lane_has_its_share_of_the_slots_there_are_now():
    spec = Spec(target="", folder="", settings=None, run="", scratch="", slots=8)  # type: ignore[arg-type]  # -- not needed
    assert (spec.tasks("main"), spec.tasks("retry")) == (6, 2)
    assert (spec.tasks("main", 40), spec.tasks("retry", 40)) == (30, 10)
