"""Where others could look: the process list, and what Spark itself shows."""

from __future__ import annotations

import psutil


def test_a_secret_setting_of_sparks_is_not_on_its_command_line(spark_session):
    assert spark_session.sparkContext.getConf().get("spark.tests.password") == "hunter2"
    family = psutil.Process().children(recursive=True)
    lines = [" ".join(one.cmdline()) for one in family]
    assert any("spark.jars" in line for line in lines), "Spark's own process"
    assert not any("hunter2" in line for line in lines)
